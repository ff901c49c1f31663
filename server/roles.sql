-- The rights of the two PostgreSQL roles that serve: the API's and the workers'. A third one owns the tables and runs the migrations.
-- Neither can change the schema. Workers, which run strangers' job files next to them, can read no token, session or key, and
-- cannot change what a job asks for or whose it is. Every table has its rights for each role; a test compares them with the models.
-- `python -m server.roles` runs this file with the names of the roles; all rights are taken first, those on columns with the table's own.

revoke create on schema public from public;
revoke all on all tables in schema public from :api, :worker;
grant usage on schema public to :api, :worker;

-- A job and its runs: both roles note progress; only the API submits.
grant select, update (status, code, message, device_class, threads, early_stop, event_sequence, noise_table, reruns, worst_gap, lead, started_at,
    finished_at, judging_by, judging_until, judge_tries, judge_after, reruns_family, answer) on jobs to :api, :worker;
grant insert, update (gate_groups, look, look_candidates, spec, config_hash, is_open, looked_at) on jobs to :api;
grant select, update (state, code, message, attempt_number, crashes, worker_id, lease_expires_at, fingerprint, manifest, rounding, reused_from,
    kept_checkpoints, steps_done, last_loss, recorded_at, steps_per_second, started_at, finished_at) on runs to :api, :worker;
grant insert, update (planned_steps, asked_by) on runs to :api;
grant select on arms to :api, :worker;
grant insert, update (question, asked) on arms to :api;
grant select, insert, update on attempts to :api, :worker;
-- The jobs of schedulers are the workers' own.
grant select on submissions to :api, :worker;
grant insert, update (attempt_number, scheduler_id, state, reason, exit_status, start, started_at, earlier_seconds, ended_at)
    on submissions to :worker;
grant select, insert, delete on chunks to :api, :worker;
grant select, insert on chunk_columns to :api, :worker;
grant select, insert on verdicts to :api, :worker;
-- Held-out losses that were sent; whoever judges their job again reads them.
grant select on evaluation_bundles to :api, :worker;
grant insert on evaluation_bundles to :api;
grant select, insert on events to :api, :worker;
grant select, update on duties to :api, :worker;
grant select on alembic_version to :api;

-- What workers read at a path is theirs alone to say.
grant select on data_reads to :api, :worker;
grant insert, update on data_reads to :worker;
grant select on workers to :api, :worker;
grant insert, update, delete on workers to :worker;

-- Analyses and healings.
grant select, update (answer) on analyses, healings to :api, :worker;
grant insert on analyses, healings to :api;
grant select on analysis_results to :api, :worker;
grant insert on analysis_results to :worker;

-- Goldens, which no worker reads.
grant select, insert, update (removed_at, removed_by, remove_reason) on goldens to :api;

-- Baselines and noise tables.
grant select on baselines to :api, :worker;
grant insert, update (expires_at) on baselines to :api;
grant select on baseline_runs to :api, :worker;
grant insert on baseline_runs to :api;
grant select, insert on baseline_events to :api;
grant select on imported_groups to :api, :worker;
grant insert on imported_groups to :api;

-- What people write. Workers, which run strangers' job files, accept no verdict.
grant select, insert on job_notes to :api;
grant select, insert on new_questions to :api;
grant select, insert, delete on job_tags to :api;
grant select, insert, update (revoked_at, revoked_by, revoke_reason) on sign_offs to :api;
-- What an owner stated of external runs; whoever judges a job reads it.
grant select on statements to :api, :worker;
grant insert on statements to :api;
revoke all on alembic_version, baseline_events, goldens, job_notes, job_tags, new_questions, sign_offs from :worker;

-- Tokens, logins and keys.
grant select, insert, update on tokens to :api;
grant select (id, max_running) on tokens to :worker;
grant select, insert, delete on browser_sessions to :api;
grant select, insert on idempotency_keys to :api;

-- The elected worker deletes old rows of these and other tables; whole jobs, with their verdicts, only the owner can.
grant delete on events to :worker;
grant select (expires_at), delete on browser_sessions to :worker;
grant select (principal, key, created_at), delete on idempotency_keys to :worker;

-- Webhooks.
grant select, insert, update, delete on webhooks to :api;
grant select on webhooks to :worker;
grant select, insert on webhook_deliveries to :api, :worker;
grant update on webhook_deliveries to :api;
grant delete on webhook_deliveries to :worker;
