// Moving jobs by hand: each asks once, says what it will touch, and does it.
import { path, post } from "./api.js";
import { confirmed } from "./dialogs.js";
import { attempt } from "./toast.js";

const DECISIONS = {
  retry: {
    title: "Retry this job?",
    about: (job) => `Job ${job.id} begins anew with all its attempts, at ${job.target}. What waits behind it in its group follows when it is done.`,
    action: "Retry",
    danger: false,
    done: "The job is on its way again.",
  },
  ignore: {
    title: "Ignore this job?",
    about: (job) => `Job ${job.id} is given up for good: ${job.target} never gets it. The rest of its group moves on without it.`,
    action: "Ignore it",
    danger: true,
    done: "The job is given up; its group moves on.",
  },
  cancel: {
    title: "Skip this job?",
    about: (job) => `Job ${job.id} is cancelled: ${job.target} never gets it. What waits behind it in its group moves on.`,
    action: "Skip it",
    danger: true,
    done: "The job is cancelled.",
  },
};

// Which of them a job allows, by its status.
export function allowed(job) {
  if (job.status === "ERROR") return ["retry", "ignore"];
  return job.status === "PENDING" || job.status === "QUEUED" ? ["cancel"] : [];
}

export const WORDS = { retry: "Retry…", ignore: "Ignore…", cancel: "Skip…" };

export async function decide(verb, job) {
  const { title, about, action, danger, done } = DECISIONS[verb];
  if (!(await confirmed({ title, about: about(job), action, danger }))) return false;
  return attempt(() => post(path`/api/v1/jobs/${job.id}/${verb}`), done);
}
