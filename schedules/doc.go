// Package schedules says when the jobs of a deployment run: one YAML file, which
// a small daemon can follow (Daemon) and from which units for systemd, CronJobs
// for Kubernetes or crontab lines are written (Render).
//
// robfig/cron/v3 reads the expressions and computes slots. Its runner is not
// used: it sleeps until a slot by the monotonic clock, so after a clock change
// or a suspend it is early or late, and in a time zone it skips a local 02:30 in
// spring and fires it twice in autumn. Here a slot is a local time that happens
// once (see Cron.Next), and the wall clock is looked at again every few seconds.
//
// What a job does is not decided here: rate takes all periods that are due, so a
// missed slot loses nothing, and running a job once too often is harmless.
package schedules
