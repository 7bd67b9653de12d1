// Package jobs owns what every job has in common: the lease that keeps two runs
// of one job from doing the same work, and the run log that says when a job
// last ran and how it ended. Each job is a package below this one; jobs do not
// import one another and meet in the run log only.
package jobs
