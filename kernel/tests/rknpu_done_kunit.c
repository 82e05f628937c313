// SPDX-License-Identifier: GPL-2.0-only
/*
 * When a chunk is over, by a core whose registers are made up: what its counter means, what S_STATUS tells, and what comes between are drawn.
 * The looks come as the driver makes them: one at each interrupt, one each 50 ms, sooner and sooner while an end is in doubt.
 */
#include <kunit/test.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/prandom.h>

#include "../rknpu/rknpu_done.c"

#define US		1000ull
#define WATCH_US	50000
#define LIMIT_US	2000000
#define LAST_BITS	0x300	/* asked for */
#define ROUNDS		3000

enum counter { MODULO, COUNT, STUCK };

struct core {
	enum counter counter;
	bool status;			/* S_STATUS tells of work, else reads 0 */
	bool status_stuck;		/* … or tells of it always */
	unsigned int tasks;
	u64 task_us;
	u64 start_us, end_us;		/* end: U64_MAX if it hangs */
	unsigned int hangs_after;
	u64 lag_us;			/* of the counter, behind the interrupt */
	u64 line_us;			/* when the interrupt comes, U64_MAX if it is lost */
	u64 spurious_us;		/* U64_MAX if none */
	bool had_job;
};

struct course {
	u64 done_us;			/* U64_MAX: the time was over */
	unsigned int looks;
	bool line;
};

static u32 counter_at(const struct core *core, u64 us)
{
	u64 seen = us - core->start_us > core->lag_us ? us - core->start_us - core->lag_us : 0;
	u32 done = min_t(u64, div64_u64(seen, core->task_us), min(core->tasks, core->hangs_after));

	if (core->counter == STUCK)
		return core->had_job || done;
	return core->counter == MODULO ? done % core->tasks : done;
}

static u32 status_at(const struct core *core, u64 us)
{
	return core->status_stuck || (core->status && us < core->end_us);
}

static u32 raw_at(const struct core *core, u64 us)
{
	return us >= core->end_us ? 0x100 : 0;
}

static struct rknpu_look look_at(const struct core *core, u64 us, u32 bits, bool line)
{
	return (struct rknpu_look) {
		.now_ns = us * US, .bits = bits, .tasks = counter_at(core, us), .running = status_at(core, us),
		.line = line, .last = us >= core->start_us + LIMIT_US,
	};
}

/* The driver's part, rknpu_watch.c's, in few lines. */
static struct course run(struct rknpu_done *done, struct core *core)
{
	struct rknpu_look look = look_at(core, core->start_us, 0, false);
	u64 spurious = core->spurious_us, line = core->line_us;
	u64 watch = core->start_us + WATCH_US, wait = 0;
	struct course course = { .done_us = U64_MAX };
	enum rknpu_verdict verdict = RKNPU_NOT_YET;

	rknpu_done_start(done, LAST_BITS, core->tasks, &look);
	core->had_job = true;
	do {
		u64 now = min3(watch, spurious, line);

		now = min(now, core->start_us + LIMIT_US);
		if (now == spurious) {
			look = look_at(core, now, 0x200, true);
			spurious = U64_MAX;
		} else if (now == line) {
			look = look_at(core, now, 0x100, true);
			line = U64_MAX;
		} else {
			look = look_at(core, now, raw_at(core, now), false);
		}
		verdict = rknpu_done_look(done, &look);
		course.looks++;
		if (verdict == RKNPU_DONE)
			course.done_us = now;
		if (now != watch && wait)
			continue;
		wait = verdict == RKNPU_LOOK_AGAIN ? clamp_t(u64, 2 * wait, 1000, WATCH_US) : 0;
		watch = now + (wait ?: WATCH_US);
	} while (verdict != RKNPU_DONE && !look.last);
	course.line = done->line;
	return course;
}

static u64 draw(struct rnd_state *rng, u64 from, u64 to)
{
	return from + prandom_u32_state(rng) % (to - from + 1);
}

static void draw_chunk(struct rnd_state *rng, struct core *core)
{
	core->start_us += 10 * LIMIT_US;
	core->tasks = draw(rng, 0, 2) ? draw(rng, 1, 40) : 1;
	core->task_us = draw(rng, 1, 9000);
	core->hangs_after = UINT_MAX;
	core->end_us = core->start_us + core->tasks * core->task_us;
	core->line_us = core->end_us + draw(rng, 0, 20);
	core->lag_us = 0;
	core->spurious_us = U64_MAX;
}

/* A core that has shown what its registers mean. */
static void teach(struct rknpu_done *done, struct core *core)
{
	core->start_us += 10 * LIMIT_US;
	core->tasks = 20;
	core->task_us = 20000;
	core->hangs_after = UINT_MAX;
	core->end_us = core->start_us + core->tasks * core->task_us;
	core->line_us = core->end_us;
	core->lag_us = 0;
	core->spurious_us = U64_MAX;
	run(done, core);
}

static void good_jobs_end_at_their_interrupt(struct kunit *test)
{
	struct rnd_state rng;
	unsigned int counter, status, i;

	prandom_seed_state(&rng, 1);
	for (counter = MODULO; counter <= STUCK; counter++)
		for (status = 0; status < 2; status++) {
			struct core core = { .counter = counter, .status = status };
			struct rknpu_done done = {};
			unsigned int late = 0;

			for (i = 0; i < ROUNDS; i++) {
				struct course course;

				draw_chunk(&rng, &core);
				course = run(&done, &core);
				KUNIT_ASSERT_GE(test, course.done_us, core.end_us);
				KUNIT_ASSERT_LE(test, course.done_us, core.line_us + WATCH_US);
				late += course.done_us > core.line_us;
			}
			/* What means nothing is found out once. */
			KUNIT_EXPECT_LE(test, late, counter == STUCK ? 1 : 0);
		}
}

static void a_counter_that_lags_costs_its_lag(struct kunit *test)
{
	struct rnd_state rng;
	unsigned int counter, i;

	prandom_seed_state(&rng, 2);
	for (counter = MODULO; counter <= COUNT; counter++) {
		struct core core = { .counter = counter, .status = true };
		struct rknpu_done done = {};

		for (i = 0; i < ROUNDS; i++) {
			struct course course;

			draw_chunk(&rng, &core);
			core.lag_us = draw(&rng, 0, 900);
			course = run(&done, &core);
			KUNIT_ASSERT_GE(test, course.done_us, core.end_us);
			KUNIT_ASSERT_LE(test, course.done_us, core.line_us + 1000);
			KUNIT_ASSERT_TRUE(test, course.line);
		}
	}
}

static void a_lost_interrupt_is_found_and_told(struct kunit *test)
{
	struct rnd_state rng;
	unsigned int counter, i;

	prandom_seed_state(&rng, 3);
	for (counter = MODULO; counter <= STUCK; counter++) {
		struct core core = { .counter = counter, .status = true };
		struct rknpu_done done = {};

		teach(&done, &core);
		for (i = 0; i < ROUNDS; i++) {
			bool lost = draw(&rng, 0, 1);
			struct course course;

			draw_chunk(&rng, &core);
			if (lost)
				core.line_us = U64_MAX;
			course = run(&done, &core);
			KUNIT_ASSERT_GE(test, course.done_us, core.end_us);
			KUNIT_ASSERT_LE(test, course.done_us, core.end_us + WATCH_US + 1000);
			KUNIT_ASSERT_EQ(test, course.line, !lost);
		}
	}
}

/* A look just before the interrupt is no lost one. */
static void a_look_that_comes_first_is_no_lost_interrupt(struct kunit *test)
{
	struct core core = { .counter = MODULO, .status = true, .tasks = 1, .task_us = 49990, .hangs_after = UINT_MAX };
	struct rknpu_done done = {};
	struct course course;

	core.start_us = 1000;
	core.end_us = core.start_us + core.task_us;
	core.line_us = core.end_us + 40;
	core.spurious_us = U64_MAX;
	course = run(&done, &core);
	KUNIT_EXPECT_EQ(test, course.done_us, core.line_us);
	KUNIT_EXPECT_TRUE(test, course.line);
}

/* Of somebody else, or late of the job before: at any time. S_STATUS or a counter that ends at the number says that it isn't over. */
static void spurious_interrupts_end_nothing(struct kunit *test)
{
	static const struct {
		enum counter counter;
		bool status;
	} ways[] = { { MODULO, true }, { COUNT, true }, { STUCK, true }, { COUNT, false } };
	struct rnd_state rng;
	unsigned int way, i;

	prandom_seed_state(&rng, 4);
	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		struct core core = { .counter = ways[way].counter, .status = ways[way].status };
		struct rknpu_done done = {};

		teach(&done, &core);
		for (i = 0; i < ROUNDS; i++) {
			struct course course;

			draw_chunk(&rng, &core);
			core.spurious_us = core.start_us + draw(&rng, 0, core.tasks * core.task_us - 1);
			course = run(&done, &core);
			KUNIT_ASSERT_GE(test, course.done_us, core.end_us);
			KUNIT_ASSERT_LE(test, course.done_us, core.line_us);
		}
	}
}

/* Without S_STATUS a counter that wraps still knows that the middle isn't the end. */
static void a_counter_in_the_middle_ends_nothing(struct kunit *test)
{
	struct core core = { .counter = MODULO };
	struct rknpu_done done = {};
	struct rnd_state rng;
	unsigned int i;

	prandom_seed_state(&rng, 5);
	teach(&done, &core);
	KUNIT_ASSERT_TRUE(test, done.witness[RKNPU_WITNESS_COUNTER].proven);
	for (i = 0; i < ROUNDS; i++) {
		struct course course;

		draw_chunk(&rng, &core);
		if (core.tasks == 1)
			continue;
		core.spurious_us = core.start_us + draw(&rng, core.task_us, core.tasks * core.task_us - 1);
		course = run(&done, &core);
		KUNIT_ASSERT_GE(test, course.done_us, core.end_us);
		KUNIT_ASSERT_LE(test, course.done_us, core.line_us);
	}
}

static void a_core_that_hangs_behind_a_spurious_interrupt_times_out(struct kunit *test)
{
	struct rnd_state rng;
	unsigned int counter, i;

	prandom_seed_state(&rng, 6);
	for (counter = MODULO; counter <= STUCK; counter++) {
		struct core core = { .counter = counter, .status = true };
		struct rknpu_done done = {};

		for (i = 0; i < ROUNDS; i++) {
			struct course course;

			/* A good one between two, as clients have it. */
			teach(&done, &core);
			draw_chunk(&rng, &core);
			core.hangs_after = draw(&rng, 0, core.tasks - 1);
			core.spurious_us = core.start_us + draw(&rng, 0, LIMIT_US / 2);
			core.end_us = U64_MAX;
			core.line_us = U64_MAX;
			if (i >= RKNPU_WITNESS_LIES)
				core.spurious_us = U64_MAX;
			course = run(&done, &core);
			KUNIT_ASSERT_EQ(test, course.done_us, U64_MAX);
			KUNIT_ASSERT_LE(test, course.looks, LIMIT_US / WATCH_US + 10);
		}
	}
}

/* What the blocks say may be wrong in a way that nobody knows of: good jobs end all the same. */
static void a_status_that_always_tells_of_work_is_found_out(struct kunit *test)
{
	struct rnd_state rng;
	unsigned int counter, proven, i;

	prandom_seed_state(&rng, 7);
	for (counter = MODULO; counter <= STUCK; counter++)
		for (proven = 0; proven < 2; proven++) {
			struct core core = { .counter = counter, .status = true };
			unsigned int late = 0, failed = 0;
			struct rknpu_done done = {};

			if (proven)
				teach(&done, &core);
			core.status_stuck = true;
			for (i = 0; i < 100; i++) {
				struct course course;

				draw_chunk(&rng, &core);
				course = run(&done, &core);
				KUNIT_ASSERT_GE(test, course.done_us, core.end_us);
				failed += course.done_us == U64_MAX;
				late += course.done_us != U64_MAX && course.done_us > core.line_us;
			}
			KUNIT_EXPECT_LE(test, failed, counter == STUCK ? 3 : proven);
			KUNIT_EXPECT_LE(test, late, 1);
		}
}

static void pairs_of_bits_are_one(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, rknpu_int_widen(0x100), 0x300);
	KUNIT_EXPECT_EQ(test, rknpu_int_widen(0x200), 0x300);
	KUNIT_EXPECT_EQ(test, rknpu_int_widen(0x411), 0xc33);
	KUNIT_EXPECT_EQ(test, rknpu_int_widen(0x1000), 0x1000);
	KUNIT_EXPECT_EQ(test, rknpu_int_widen(0), 0);
}

static struct kunit_case done_cases[] = {
	KUNIT_CASE(good_jobs_end_at_their_interrupt),
	KUNIT_CASE(a_counter_that_lags_costs_its_lag),
	KUNIT_CASE(a_lost_interrupt_is_found_and_told),
	KUNIT_CASE(a_look_that_comes_first_is_no_lost_interrupt),
	KUNIT_CASE(spurious_interrupts_end_nothing),
	KUNIT_CASE(a_counter_in_the_middle_ends_nothing),
	KUNIT_CASE(a_core_that_hangs_behind_a_spurious_interrupt_times_out),
	KUNIT_CASE(a_status_that_always_tells_of_work_is_found_out),
	KUNIT_CASE(pairs_of_bits_are_one),
	{}
};

static struct kunit_suite done_suite = {
	.name = "rknpu_done",
	.test_cases = done_cases,
};

kunit_test_suite(done_suite);

MODULE_DESCRIPTION("KUnit tests of when npud_rknpu takes a chunk for done");
MODULE_LICENSE("GPL");
