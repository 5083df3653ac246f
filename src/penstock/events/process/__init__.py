"""A pointer came: begin the job, deliver it, decide what follows."""
