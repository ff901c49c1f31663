"""What each error code of a run or a job means, and what to do about it.

The codes themselves are raised where they arise: in the server, the trainer, workers and the lab.
docs/codes.md has one row per entry, to which the pages of runs and jobs lead.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_LINK_BEHIND = re.compile(r" \(\[[^\]]*\]\([^)]*\)\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class RunCode(NamedTuple):
    """What a code means, and what to do: parts of a sentence in Markdown, whose links lead from
    docs/codes.md.
    """

    meaning: str
    next_step: str


RUN_CODES: Mapping[str, RunCode] = {
    "BASELINE_DIFFERS": RunCode(
        "the run's manifest differs from that of the baseline that the job names",
        (
            "`parity baseline diff NAME JOB` lists the differences; train on the same code, "
            "libraries and devices, or promote again"
        ),
    ),
    "CANCELLED": RunCode(
        "an arm has no finished run because its runs were cancelled",
        "submit the job again",
    ),
    "CHECKOUT_REFUSED": RunCode(
        (
            "the files of a commit cannot be written: a submodule, a link out of the repository, "
            "or too many files"
        ),
        "list the launcher's `paths` without it ([launchers](launchers.md))",
    ),
    "CHECKPOINT_NOT_FOUND": RunCode(
        "the worker of an analysis has no intact checkpoint of the parent",
        (
            "give all workers one `PARITY_CHECKPOINT_DIR`, or train the parent again with "
            "`keep_checkpoints`"
        ),
    ),
    "CHECKPOINT_REFUSED": RunCode(
        (
            "a checkpoint was written by another specification, program or machine; workers do not "
            "fail for this, they train again from step 0"
        ),
        "none for a job; for your own call of the trainer, name another folder",
    ),
    "DATA_CHANGED": RunCode(
        "`data.source: parity_docs`, and the worker's copy of the text is missing or was edited",
        (
            "restore `training/trainer/corpus/parity_docs.txt` from the worker's release, or use "
            "`data.source: text`"
        ),
    ),
    "DATA_NOT_FOUND": RunCode(
        "the job's data is not on the worker",
        "check `data.path`; it must be an absolute path that the worker can see",
    ),
    "DATA_NOT_READABLE": RunCode(
        "the operating system refused to read or write a file",
        "read the message; check permissions and the disk of the worker",
    ),
    "DATA_NOT_TOKENS": RunCode(
        "the token file has another format",
        (
            "write `.npy` with integers, or `.bin` with little-endian uint16 ([job "
            "file](job-file.md#data))"
        ),
    ),
    "DATA_TOO_LARGE": RunCode(
        "more tokens than a 32-bit offset reaches",
        "use a part of the data",
    ),
    "DATA_TOO_SMALL": RunCode(
        "too few tokens for one batch or for the held-out part",
        "use more data, or reduce `data.sequence_length` or `data.validation_fraction`",
    ),
    "DEVICES_MISSING": RunCode(
        (
            "the training process sees fewer devices than the job wants and its worker registered "
            "(a job that no worker fits waits instead)"
        ),
        "restart the worker, so that it registers its devices",
    ),
    "DIVERGED": RunCode(
        "the loss became NaN or infinite; the run counts as finished and is judged",
        "take it as the result, or lower `schedule.learning_rate`",
    ),
    "EARLY_STOP": RunCode(
        "the policy's `early_stop: stop` ended a candidate that will fail or cannot pass in time",
        (
            "take it as the result: it could hardly pass any more. To train to the end, set "
            "`early_stop: advise`"
        ),
    ),
    "ENDED_EARLY": RunCode(
        (
            "a launcher's trainer ended without an error before its last step; the run counts as "
            "finished"
        ),
        "the judge answers as of its last step; read the end of its output in the message",
    ),
    "FORKS_TELL_NOTHING": RunCode(
        "the forks of an analysis do not differ, so their noise is unknown",
        "use longer forks",
    ),
    "FORK_DIVERGED": RunCode(
        "a loss of an analysis became NaN or infinite",
        "analyse an earlier checkpoint, or use shorter forks ([forks](explain.md))",
    ),
    "HELD_OUT_MISSING": RunCode(
        "the data have fewer than two held-out batches, which an analysis needs",
        "set `data.validation_fraction` and train again",
    ),
    "JOB_LOST": RunCode(
        (
            "a scheduler ended a job, and its script did not see the trainer's end: its time "
            "limit, a node that died, or a cancellation"
        ),
        (
            "read the scheduler's word and the end of its log in the message; raise the limit in "
            "the launcher's options"
        ),
    ),
    "JUDGE_FAILED": RunCode(
        "the judge itself failed; the curves are kept",
        (
            "report it with the message; an admin's `parity runs conclude JOB` later records the "
            "verdict"
        ),
    ),
    "JUDGING_AGAIN": RunCode(
        (
            "the job has trained and could not be judged yet, mostly because the database was "
            "away; it is tried again by itself"
        ),
        "nothing, if it passes; else the message says what the server's operator has to repair",
    ),
    "LAUNCHER_CHANGED": RunCode(
        (
            "the launcher changed after steps of the run were recorded, and the run needs another "
            "attempt"
        ),
        "submit the job again: a curve of two launchers says nothing of either",
    ),
    "LAUNCHER_REFUSED": RunCode(
        (
            "the file of launchers is wrong, the launcher cannot start its program, or it trains "
            "without the commit's files"
        ),
        "read the message; the operator corrects the file ([launchers](launchers.md))",
    ),
    "LAUNCHER_UNKNOWN": RunCode(
        "the worker's file of launchers no longer has the one that the job names",
        "name another one, or ask the operator",
    ),
    "LOG_REFUSED": RunCode(
        (
            "a trainer's report is no regular file below its output folder, is too long, goes "
            "back, or cannot be read"
        ),
        "read the message; let the report rise, one line a step",
    ),
    "MAXTEXT_CRASHED": RunCode(
        "MaxText ended with an error, without a step, or because it was told to stop",
        "the message has the last 50 lines of its log",
    ),
    "MAXTEXT_ENDED_EARLY": RunCode(
        (
            "MaxText ended without an error before its last step, mostly because the data ended; "
            "the run counts as finished"
        ),
        "the judge answers as of its last step; use more data, or set `maxtext.num_epoch`",
    ),
    "MAXTEXT_EVALUATION": RunCode(
        "the evaluation of a checkpoint gave no loss; the training curve is recorded",
        "read the message; check `maxtext.eval_path`",
    ),
    "MAXTEXT_FAILED": RunCode(
        "MaxText could not start or continue, for another reason",
        "read the message and the run's log",
    ),
    "MAXTEXT_HUNG": RunCode(
        "MaxText is alive and writes nothing",
        (
            "check the GPUs and the network; raise `PARITY_SILENCE_SECONDS` if a step really takes "
            "that long"
        ),
    ),
    "MAXTEXT_NOT_INSTALLED": RunCode(
        "`PARITY_MAXTEXT_PYTHON` is not set or has no MaxText",
        "set it to a Python that has MaxText ([MaxText](maxtext.md))",
    ),
    "MAXTEXT_VERSION": RunCode(
        "the installed MaxText has an output format that parity does not know",
        "install 0.2.5 or a later 0.2.x",
    ),
    "MEMORY_LIMIT": RunCode(
        "the run used more memory than `PARITY_MAX_RUN_MEMORY_BYTES`",
        "reduce `data.batch_size`, `data.sequence_length` or the model, or raise the limit",
    ),
    "METRICS_GAP": RunCode(
        (
            "MaxText trained to the end but steps are missing in `metrics_file`; the run counts as "
            "finished"
        ),
        "the judge will not pass it; train the run again",
    ),
    "METRICS_GARBAGE": RunCode(
        "`metrics_file` contains what MaxText does not write, or contradicts its log",
        "check that no other process writes to the same folder",
    ),
    "METRICS_STOPPED": RunCode(
        "MaxText's log goes on but `metrics_file` does not",
        "check the disk of the worker",
    ),
    "NOT_IN_PRECISION": RunCode(
        (
            "trained again, a run that an analysis compares does not follow its record, so its "
            "GEMMs are not to blame"
        ),
        (
            "look at what differs, which the analysis lists, and train that run again "
            "([explain](explain.md))"
        ),
    ),
    "NOT_REPLAYED": RunCode(
        (
            "a run that an analysis compares could not be trained again, or not bit for bit, so it "
            "names nothing"
        ),
        (
            "train the job again with its checkpoints on one kind of machine; `parity why "
            "JOB --anyway` accepts the noise of reruns"
        ),
    ),
    "NO_LOSS": RunCode(
        "a launcher's trainer ended without an error and had reported no loss",
        "compare `reports` of the launcher with what the trainer writes",
    ),
    "OUTPUT_LIMIT": RunCode(
        "a launcher's trainer wrote more than the launcher allows",
        "write fewer checkpoints, or raise `limits.output_bytes`",
    ),
    "OUT_OF_MEMORY": RunCode(
        "the device has too little memory",
        (
            "reduce `data.batch_size`, `data.sequence_length` or the model, or raise "
            "`gradient_accumulation`"
        ),
    ),
    "PARAMETER_REFUSED": RunCode(
        (
            "a parameter or environment of the job is not one that the launcher has, or its value "
            "does not fit"
        ),
        "the message says what is expected",
    ),
    "PATH_NOT_ALLOWED": RunCode(
        (
            "the job names a path outside the `PARITY_DATA_ROOTS` of its worker, and no live "
            "worker may read it"
        ),
        "move the data, or ask the operator to add the folder",
    ),
    "PREEMPTED": RunCode(
        (
            "the scheduler gave a job's node to another one and will not start it again; this is "
            "no crash, and the run is submitted again"
        ),
        "nothing; with `--requeue` in the launcher's options the same job goes on",
    ),
    "RECIPE_REFUSED": RunCode(
        "this machine cannot run the recipe; the message says why",
        "`parity doctor` shows which worker can ([hardware](hardware.md))",
    ),
    "RECORD_DAMAGED": RunCode(
        (
            "recorded steps are not as they were written (a disk, a memory, or somebody changed "
            "them), so there is no verdict on them"
        ),
        (
            "`python -m server.check` lists the damage and where to find the same steps; then an "
            "admin runs `parity runs conclude JOB`"
        ),
    ),
    "REPOSITORY_UNREACHABLE": RunCode(
        (
            "the repository of a launcher could not be fetched; tried again, so it begins the "
            "message of a `WORKER_CRASHED`"
        ),
        "check its URL and credentials (`git_config`) on the worker",
    ),
    "REVISION_NOT_FOUND": RunCode(
        "the commit is on no ref that the launcher lists, or has no file in its `paths`",
        "push the commit to such a branch",
    ),
    "SCHEDULER_REFUSED": RunCode(
        "the scheduler does not take the job, whatever the time",
        (
            "read its sentence in the message; the operator corrects the launcher's options "
            "([launchers](launchers.md#on-a-cluster))"
        ),
    ),
    "SCHEDULER_UNREACHABLE": RunCode(
        (
            "the scheduler does not answer; it is asked again for as long as it takes, and no run "
            "fails"
        ),
        (
            "start its controller; the worker's log says once that it is away, and once that it is "
            "back"
        ),
    ),
    "SILENT": RunCode(
        (
            "an external run sent no data for a day (`PARITY_EXTERNAL_SILENCE_SECONDS`) in which "
            "the service listened"
        ),
        (
            "start the trainer again, or send what is on disk with `parity resend FILE`, while the "
            "job is open; afterwards submit it again"
        ),
    ),
    "SPEC_UNREADABLE": RunCode(
        "the stored job cannot be read, or a run that it starts from is gone",
        "submit the job again",
    ),
    "STALE": RunCode(
        "an external run has sent no data for 15 minutes",
        "nothing, if the script still trains: the run continues when data arrives",
    ),
    "STEPS_ABOVE_PLAN": RunCode(
        (
            "a trainer logged steps more than a quarter above its plan; those are not recorded, "
            "and the run counts as finished"
        ),
        (
            "log optimizer steps; if the plan is wrong, train or import the run in a job with a "
            "longer schedule"
        ),
    ),
    "SUPERSEDED": RunCode(
        "another trainer attached to this run and took it over",
        "log each run from one process only (rank 0)",
    ),
    "TIME_LIMIT": RunCode(
        (
            "the run trained for longer than `max_run_seconds`, `PARITY_MAX_RUN_SECONDS` or its "
            "launcher's `limits.seconds`"
        ),
        "plan fewer steps, or allow more seconds",
    ),
    "TRAINER_BROKE_OFF": RunCode(
        "your script ended before its last step; the run waits for the next attempt",
        "start the script again with the same run id",
    ),
    "TRAINER_FAILED": RunCode(
        "your script, or a launcher's trainer, ended with an error",
        "read the message, fix the script, submit the job again",
    ),
    "TRAINER_KILLED": RunCode(
        (
            "a launcher's trainer was killed by a signal; tried again, so it begins the message of "
            "a `WORKER_CRASHED`"
        ),
        "out of memory on the host is the usual cause",
    ),
    "TRAINER_SILENT": RunCode(
        (
            "a launcher's trainer reported nothing for `limits.silent_seconds`; tried again, so it "
            "begins the message of a `WORKER_CRASHED`"
        ),
        "read the end of its output in the message",
    ),
    "VOCABULARY_TOO_SMALL": RunCode(
        "the data has a token id that the model does not",
        "raise `model.vocab_size`",
    ),
    "WORKER_CRASHED": RunCode(
        (
            "the training process or its worker died; after `PARITY_MAX_ATTEMPTS` attempts the run "
            "fails"
        ),
        "the message has the end of the log; out of memory on the host is the usual cause",
    ),
    "WRAPPER": RunCode(
        (
            "the variables of the wrapper, such as `srun`, are missing, contradict each other, or "
            "do not fit the job"
        ),
        "compare the message with [runs on a cluster](operate.md#runs-on-a-cluster)",
    ),
}


def remedy_of(code: str) -> str:
    """What to do about a code, as a sentence without links; "" for a code that has no entry."""
    if (entry := RUN_CODES.get(code)) is None:
        return ""
    words = _LINK.sub(r"\1", _LINK_BEHIND.sub("", entry.next_step))
    return f"{words[:1].upper()}{words[1:]}."
