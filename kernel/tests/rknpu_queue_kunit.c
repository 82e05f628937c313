// SPDX-License-Identifier: GPL-2.0-only
/* The run queue: who starts next, and where. */
#include <kunit/test.h>
#include <linux/module.h>

#include "../rknpu/rknpu_queue.c"

#define CORES 3

struct fixture {
	struct rknpu_queue queue;
	struct rknpu_queue_core core[CORES];
	struct rknpu_queue_entry entry[8];
	unsigned int used;
};

static const char space_a, space_b;

static int queue_test_init(struct kunit *test)
{
	struct fixture *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, f);
	rknpu_queue_init(&f->queue);
	for (i = 0; i < CORES; i++)
		f->core[i].unit = i;
	test->priv = f;
	return 0;
}

static struct rknpu_queue_entry *add(struct kunit *test, s32 priority, u64 seq, u32 cores, bool any, const void *space)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *entry = &f->entry[f->used++];

	*entry = (struct rknpu_queue_entry) {
		.priority = priority, .seq = seq, .cores = cores, .any = any, .space = space,
	};
	rknpu_queue_add(&f->queue, entry);
	return entry;
}

static struct rknpu_queue_entry *pick(struct kunit *test, u32 *cores)
{
	struct fixture *f = test->priv;

	return rknpu_queue_pick(&f->queue, f->core, CORES, cores);
}

static void an_empty_queue_gives_nothing(struct kunit *test)
{
	u32 cores;

	KUNIT_EXPECT_NULL(test, pick(test, &cores));
}

static void order_is_priority_then_age(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *late = add(test, 0, 4, 1, false, &space_a);
	struct rknpu_queue_entry *old = add(test, 0, 2, 1, false, &space_a);
	struct rknpu_queue_entry *urgent = add(test, -1, 9, 1, false, &space_a);
	struct rknpu_queue_entry *idle = add(test, 5, 1, 1, false, &space_a);
	const struct rknpu_queue_entry *expected[] = { urgent, old, late, idle };
	struct rknpu_queue_entry *pos;
	unsigned int i = 0;

	list_for_each_entry(pos, &f->queue.entries, link)
		KUNIT_EXPECT_PTR_EQ(test, (const struct rknpu_queue_entry *)pos, expected[i++]);
	KUNIT_EXPECT_EQ(test, i, 4);
}

static void any_core_prefers_the_warm_one(struct kunit *test)
{
	struct fixture *f = test->priv;
	u32 cores;

	add(test, 0, 1, 7, true, &space_a);
	f->core[2].live = &space_a;
	f->core[2].busy_ns = 1000;
	KUNIT_EXPECT_NOT_NULL(test, pick(test, &cores));
	KUNIT_EXPECT_EQ(test, cores, 4);
	f->core[2].suspect = 1;
	KUNIT_EXPECT_NOT_NULL(test, pick(test, &cores));
	KUNIT_EXPECT_EQ(test, cores, 1);
	f->core[0].busy_ns = 5;
	KUNIT_EXPECT_NOT_NULL(test, pick(test, &cores));
	KUNIT_EXPECT_EQ(test, cores, 2);
}

static void a_job_behind_may_use_what_the_first_cannot(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *second;
	u32 cores;

	add(test, 0, 1, 1, false, &space_a);
	second = add(test, 0, 2, 2, false, &space_b);
	f->core[0].busy = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), second);
	KUNIT_EXPECT_EQ(test, cores, 2);
}

static void a_waiting_gang_keeps_its_cores(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *gang = add(test, 0, 1, 3, false, &space_a);
	struct rknpu_queue_entry *third;
	u32 cores;

	add(test, 0, 2, 2, false, &space_b);
	f->core[0].busy = true;
	/* core 1 is idle, but the gang will need it */
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	third = add(test, 0, 3, 7, true, &space_b);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), third);
	KUNIT_EXPECT_EQ(test, cores, 4);
	f->core[0].busy = false;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), gang);
	KUNIT_EXPECT_EQ(test, cores, 3);
}

static void one_mmu_runs_one_space_at_a_time(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *other = add(test, 0, 1, 7, true, &space_b);
	unsigned int i;
	u32 cores;

	for (i = 0; i < CORES; i++) {
		f->core[i].unit = 0;
		f->core[i].running_space = &space_a;
	}
	f->core[0].busy = true;
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	/* … and one that would go on in the present space has to wait behind it, or the other would never run */
	add(test, 0, 2, 7, true, &space_a);
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	f->core[0].busy = false;
	for (i = 0; i < CORES; i++)
		f->core[i].running_space = NULL;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), other);
}

static void cores_with_one_space_share_one_mmu(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *entry = add(test, 0, 1, 2, false, &space_a);
	unsigned int i;
	u32 cores;

	for (i = 0; i < CORES; i++) {
		f->core[i].unit = 0;
		f->core[i].running_space = &space_a;
	}
	f->core[0].busy = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), entry);
	KUNIT_EXPECT_EQ(test, cores, 2);
}

static void dead_cores_are_named_not_waited_for(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *entry = add(test, 0, 1, 3, false, &space_a);
	u32 cores = 9;

	f->core[1].dead = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), entry);
	KUNIT_EXPECT_EQ(test, cores, 0);
	list_del(&entry->link);
	entry = add(test, 0, 2, 7, true, &space_a);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), entry);
	KUNIT_EXPECT_NE(test, cores, 0);
	KUNIT_EXPECT_NE(test, cores, 2);
}

static void a_space_keeps_its_unit_for_a_slice(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *other = add(test, 0, 1, 7, true, &space_b), *mate, *lesser;
	unsigned int i;
	u32 cores;

	for (i = 0; i < CORES; i++) {
		f->core[i].unit = 0;
		f->core[i].live = &space_a;
		f->core[i].slice = true;
	}
	/* nobody goes on in it: no core idles for that */
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), other);
	lesser = add(test, 1, 2, 7, true, &space_a);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), other);
	list_del(&lesser->link);
	mate = add(test, 0, 3, 7, true, &space_a);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), mate);
	/* beside others of its space, too */
	for (i = 0; i < CORES; i++)
		f->core[i].running_space = &space_a;
	f->core[0].busy = true;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), mate);
	/* until it is over */
	for (i = 0; i < CORES; i++)
		f->core[i].slice = false;
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	f->core[0].busy = false;
	for (i = 0; i < CORES; i++)
		f->core[i].running_space = NULL;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), other);
}

static void a_unit_may_wait_for_a_quick_client(struct kunit *test)
{
	struct fixture *f = test->priv;
	struct rknpu_queue_entry *other = add(test, 0, 2, 1, false, &space_b), *urgent;
	u32 cores;

	f->core[0].live = &space_a;
	f->core[0].linger = true;
	KUNIT_EXPECT_NULL(test, pick(test, &cores));
	urgent = add(test, -1, 3, 1, false, &space_b);
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), urgent);
	list_del(&urgent->link);
	f->core[0].linger = false;
	KUNIT_EXPECT_PTR_EQ(test, pick(test, &cores), other);
}

/* --- drawn arrivals ---------------------------------------------------------------------------------------------------------------- */

#define DRAWN_JOBS	120
#define DRAWN_ROUNDS	60
#define DRAWN_SPACES	4
#define DRAWN_LONGEST	9
#define DRAWN_SLICE	25

struct drawn {
	struct rknpu_queue_entry entry;
	unsigned int arrives, takes, started, ends;
};

struct model {
	struct rknpu_queue queue;
	struct rknpu_queue_core core[CORES];
	struct drawn *on[CORES];
	unsigned int slice_end[CORES];	/* of each unit */
	struct drawn job[DRAWN_JOBS];
	u32 seed;
};

static const char drawn_space[DRAWN_SPACES];

static u32 draw(struct model *m, u32 below)
{
	m->seed = m->seed * 1664525 + 1013904223;
	return (m->seed >> 8) % below;
}

static void model_see(struct model *m, unsigned int now)
{
	unsigned int i, k;

	for (i = 0; i < CORES; i++) {
		m->core[i].busy = m->on[i];
		m->core[i].running_space = NULL;
		m->core[i].slice = now < m->slice_end[m->core[i].unit];
		for (k = 0; k < CORES; k++)
			if (m->on[k] && m->core[k].unit == m->core[i].unit)
				m->core[i].running_space = m->on[k]->entry.space;
	}
}

static void model_start(struct kunit *test, struct model *m, struct drawn *job, u32 cores, unsigned int now)
{
	unsigned int i, k;

	list_del(&job->entry.link);
	job->started = now;
	job->ends = now + job->takes;
	for (i = 0; i < CORES; i++) {
		if (!(cores & BIT(i)))
			continue;
		KUNIT_EXPECT_NULL(test, m->on[i]);
		KUNIT_EXPECT_TRUE(test, !m->core[i].running_space || m->core[i].running_space == job->entry.space);
		m->on[i] = job;
		if (m->core[i].live == job->entry.space)
			continue;
		for (k = 0; k < CORES; k++)
			if (m->core[k].unit == m->core[i].unit)
				m->core[k].live = job->entry.space;
		m->slice_end[m->core[i].unit] = now + DRAWN_SLICE;
	}
}

/*
 * Nobody starves: what goes before a job are those that are older, and for each of these, as for the job itself, one slice of another space on each unit
 * with what then still runs there. All run one after the other at worst.
 */
static unsigned int model_bound(const struct model *m, const struct drawn *job)
{
	unsigned int i, bound = CORES * (DRAWN_SLICE + DRAWN_LONGEST);

	for (i = 0; i < DRAWN_JOBS; i++)
		if (m->job[i].entry.seq < job->entry.seq && m->job[i].ends > job->arrives)
			bound += m->job[i].takes + CORES * (DRAWN_SLICE + DRAWN_LONGEST);
	return bound;
}

static void drawn_arrivals(struct kunit *test, struct model *m)
{
	unsigned int now, i, arrived = 0, at = 0, left = DRAWN_JOBS, units = draw(m, 2) ? 1 : CORES;

	rknpu_queue_init(&m->queue);
	for (i = 0; i < CORES; i++)
		m->core[i].unit = i % units;
	for (i = 0; i < DRAWN_JOBS; i++) {
		struct drawn *job = &m->job[i];

		at += draw(m, 3) ? 0 : draw(m, 12);
		job->arrives = at;
		job->takes = 1 + draw(m, DRAWN_LONGEST);
		job->entry = (struct rknpu_queue_entry) {
			.seq = i, .any = draw(m, 2), .space = &drawn_space[draw(m, DRAWN_SPACES)],
		};
		job->entry.cores = job->entry.any ? 7 : 1 + draw(m, 7);
	}
	for (now = 0; left && now < 100000; now++) {
		struct rknpu_queue_entry *entry;
		u32 cores;

		for (i = 0; i < CORES; i++) {
			if (m->on[i] && m->on[i]->ends == now) {
				struct drawn *job = m->on[i];
				unsigned int k;

				for (k = 0; k < CORES; k++)
					if (m->on[k] == job)
						m->on[k] = NULL;
				left--;
			}
		}
		for (; arrived < DRAWN_JOBS && m->job[arrived].arrives == now; arrived++)
			rknpu_queue_add(&m->queue, &m->job[arrived].entry);
		for (model_see(m, now); (entry = rknpu_queue_pick(&m->queue, m->core, CORES, &cores)); model_see(m, now)) {
			struct rknpu_queue_entry *pos;

			/* Who goes before older ones that wait for the same cores does so in its own space's slice. */
			list_for_each_entry(pos, &m->queue.entries, link) {
				if (pos == entry)
					break;
				for (i = 0; i < CORES; i++)
					if ((cores & pos->cores & BIT(i)) && pos->space != entry->space &&
					    m->core[i].running_space == entry->space)
						KUNIT_EXPECT_TRUE(test, m->core[i].slice && m->core[i].live == entry->space);
			}
			model_start(test, m, container_of(entry, struct drawn, entry), cores, now);
		}
	}
	KUNIT_EXPECT_EQ(test, left, 0);
	for (i = 0; i < DRAWN_JOBS; i++)
		KUNIT_EXPECT_LE(test, m->job[i].started - m->job[i].arrives, model_bound(m, &m->job[i]));
}

static void no_job_waits_longer_than_slices_allow(struct kunit *test)
{
	unsigned int round;

	for (round = 0; round < DRAWN_ROUNDS; round++) {
		struct model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);

		KUNIT_ASSERT_NOT_NULL(test, m);
		m->seed = round;
		drawn_arrivals(test, m);
		kunit_kfree(test, m);
	}
}

/* One space has a backlog and never stops; the other's single job starts when the slice and what then runs are over. */
static void a_backlog_starves_nobody(struct kunit *test)
{
	struct model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	unsigned int now, i, next = 1;
	struct drawn *lone;

	KUNIT_ASSERT_NOT_NULL(test, m);
	rknpu_queue_init(&m->queue);
	lone = &m->job[0];
	*lone = (struct drawn) { .takes = 1, .entry = { .seq = 1, .cores = 7, .any = true, .space = &space_b } };
	for (now = 0; now < 200 && !lone->started; now++) {
		struct rknpu_queue_entry *entry;
		u32 cores;

		for (i = 0; i < CORES; i++)
			if (m->on[i] && m->on[i]->ends == now)
				m->on[i] = NULL;
		if (now == 2)
			rknpu_queue_add(&m->queue, &lone->entry);
		while (next < DRAWN_JOBS && next < 6 + now) {
			m->job[next] = (struct drawn) {
				.takes = 5,
				.entry = { .seq = 1 + next, .cores = 7, .any = true, .space = &space_a },
			};
			rknpu_queue_add(&m->queue, &m->job[next++].entry);
		}
		for (model_see(m, now); (entry = rknpu_queue_pick(&m->queue, m->core, CORES, &cores)); model_see(m, now))
			model_start(test, m, container_of(entry, struct drawn, entry), cores, now);
	}
	KUNIT_EXPECT_GE(test, lone->started, DRAWN_SLICE);
	KUNIT_EXPECT_LE(test, lone->started, DRAWN_SLICE + 5);
}

static struct kunit_case queue_cases[] = {
	KUNIT_CASE(an_empty_queue_gives_nothing),
	KUNIT_CASE(order_is_priority_then_age),
	KUNIT_CASE(any_core_prefers_the_warm_one),
	KUNIT_CASE(a_job_behind_may_use_what_the_first_cannot),
	KUNIT_CASE(a_waiting_gang_keeps_its_cores),
	KUNIT_CASE(one_mmu_runs_one_space_at_a_time),
	KUNIT_CASE(cores_with_one_space_share_one_mmu),
	KUNIT_CASE(dead_cores_are_named_not_waited_for),
	KUNIT_CASE(a_space_keeps_its_unit_for_a_slice),
	KUNIT_CASE(a_unit_may_wait_for_a_quick_client),
	KUNIT_CASE(no_job_waits_longer_than_slices_allow),
	KUNIT_CASE(a_backlog_starves_nobody),
	{}
};

static struct kunit_suite queue_suite = {
	.name = "rknpu_queue",
	.init = queue_test_init,
	.test_cases = queue_cases,
};

kunit_test_suite(queue_suite);

MODULE_DESCRIPTION("KUnit tests of npud_rknpu's run queue");
MODULE_LICENSE("GPL");
