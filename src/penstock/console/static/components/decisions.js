// Manual decisions about jobs: retry, ignore, skip. Each asks for confirmation first.
import { path, post } from "../data/api.js";
import { confirmed } from "./dialogs.js";
import { attempt } from "./toast.js";

const DECISIONS = {
  retry: {
    title: "Retry this job?",
    about: (job) => `Job ${job.id} is retried at ${job.target}, with all its attempts. The jobs behind it in its group follow when it is finished.`,
    action: "Retry",
    danger: false,
    done: "The job will be retried.",
  },
  ignore: {
    title: "Ignore this job?",
    about: (job) => `Job ${job.id} is given up: ${job.target} never gets it. The rest of its group continues without it.`,
    action: "Ignore",
    danger: true,
    done: "The job is ignored; its group continues.",
  },
  cancel: {
    title: "Skip this job?",
    about: (job) => `Job ${job.id} is cancelled: ${job.target} never gets it. The jobs behind it in its group continue.`,
    action: "Skip",
    danger: true,
    done: "The job is cancelled.",
  },
};

// Return the decisions that a job's status allows.
export function allowed(job) {
  if (job.status === "ERROR") return ["retry", "ignore"];
  return job.status === "PENDING" || job.status === "QUEUED" ? ["cancel"] : [];
}

export const LABELS = { retry: "Retry…", ignore: "Ignore…", cancel: "Skip…" };

export async function decide(verb, job) {
  const { title, about, action, danger, done } = DECISIONS[verb];
  if (!(await confirmed({ title, about: about(job), action, danger }))) return false;
  return attempt(() => post(path`/api/v1/jobs/${job.id}/${verb}`), done);
}
