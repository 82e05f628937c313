/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Trace events: what becomes of each job, and what cores and their MMUs are made to do for it.
 *
 *	echo 1 > /sys/kernel/tracing/events/rknpu/enable
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rknpu

#if !defined(RKNPU_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define RKNPU_TRACE_H

#include <linux/sched.h>
#include <linux/string.h>
#include <linux/tracepoint.h>

#include "rknpu_core.h"
#include "rknpu_file.h"
#include "rknpu_job.h"
#include "rknpu_mmu.h"
#include "rknpu_vm.h"

DECLARE_EVENT_CLASS(rknpu_job,
	TP_PROTO(const struct rknpu_job *job),
	TP_ARGS(job),
	TP_STRUCT__entry(
		__field(u64, job)
		__field(u64, file)
		__field(int, pid)
		__array(char, comm, TASK_COMM_LEN)
		__field(u32, space)
		__field(u32, cores)
		__field(s32, priority)
	),
	TP_fast_assign(
		__entry->job = job->entry.seq;
		__entry->file = job->file->id;
		__entry->pid = job->file->pid;
		memcpy(__entry->comm, job->file->comm, TASK_COMM_LEN);
		__entry->space = job->space->id;
		__entry->cores = job->state == RKNPU_JOB_RUNNING ? job->cores : job->entry.cores;
		__entry->priority = job->entry.priority;
	),
	TP_printk("job=%llu file=%llu pid=%d comm=%s space=%u cores=%#x priority=%d",
		  __entry->job, __entry->file, __entry->pid, __entry->comm, __entry->space, __entry->cores, __entry->priority)
);

/*
 * It waits for cores now; once more where it couldn't be started.
 * @cores are those that it may have.
 */
DEFINE_EVENT(rknpu_job, job_queued,
	TP_PROTO(const struct rknpu_job *job),
	TP_ARGS(job)
);

DEFINE_EVENT(rknpu_job, job_started,
	TP_PROTO(const struct rknpu_job *job),
	TP_ARGS(job)
);

TRACE_EVENT(job_ended,
	TP_PROTO(const struct rknpu_job *job),
	TP_ARGS(job),
	TP_STRUCT__entry(
		__field(u64, job)
		__field(u64, file)
		__field(u32, cores)
		__field(u32, tasks)
		__field(u64, elapsed_ns)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->job = job->entry.seq;
		__entry->file = job->file->id;
		__entry->cores = job->cores;
		__entry->tasks = job->tasks_done;
		__entry->elapsed_ns = job->elapsed_ns;
		__entry->result = job->result;
	),
	TP_printk("job=%llu file=%llu cores=%#x tasks=%u elapsed_ns=%llu result=%d",
		  __entry->job, __entry->file, __entry->cores, __entry->tasks, __entry->elapsed_ns, __entry->result)
);

/*
 * What the cores behind @unit translate by from now on.
 * @space is NULL, and file is 0, where that is nothing.
 */
TRACE_EVENT(space_switched,
	TP_PROTO(const struct rknpu_mmu_unit *unit, const struct rknpu_space *space, int result),
	TP_ARGS(unit, space, result),
	TP_STRUCT__entry(
		__field(u32, unit)
		__field(u64, file)
		__field(u32, space)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->unit = unit->index;
		__entry->file = space ? space->file_id : 0;
		__entry->space = space ? space->id : 0;
		__entry->result = result;
	),
	TP_printk("unit=%u file=%llu space=%u result=%d", __entry->unit, __entry->file, __entry->space, __entry->result)
);

TRACE_EVENT(core_reset,
	TP_PROTO(const struct rknpu_core *core, int result),
	TP_ARGS(core, result),
	TP_STRUCT__entry(
		__field(u32, core)
		__field(int, result)
	),
	TP_fast_assign(
		__entry->core = core->index;
		__entry->result = result;
	),
	TP_printk("core=%u result=%d", __entry->core, __entry->result)
);

#endif /* RKNPU_TRACE_H */

/* Outside of the kernel's tree the header is found beside its source. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE rknpu_trace
#include <trace/define_trace.h>
