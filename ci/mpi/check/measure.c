/* What a message takes of a processor, and a connection of memory. */
#include "check.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static double processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* read_one takes one completion. It asks for no time, which would be measured too. */
static void read_one(struct side *s)
{
	struct fi_cq_data_entry e;
	ssize_t n = -FI_EAGAIN;
	long tries;

	for (tries = 0; n == -FI_EAGAIN && tries < 100000000; tries++)
		n = fi_cq_read(s->cq, &e, 1);
	WANT(n, 1);
}

void measure_messages(int count, size_t bytes, char **devices)
{
	struct side sides[2];
	double start;
	int i;

	section = "time";
	for (i = 1; i >= 0; i--) {
		if (devices != NULL)
			WANT(setenv("FI_TRAPEZE_DEVICE", devices[i], 1), 0);
		side_open(&sides[i], i == 1, FI_WAIT_NONE);
	}
	connect_sides(&sides[0], &sides[1]);
	for (i = 0; i < 2; i++)
		post_receive(&sides[i], 0, bytes);
	start = processor_ns();
	for (i = 0; i < count; i++) {
		struct side *from = &sides[i & 1], *to = &sides[~i & 1];

		post_send(from, 0, bytes);
		read_one(to);
		post_receive(to, 0, bytes);
		read_one(from);
	}
	printf("%zu bytes: %.0f ns of a processor for each message, both ends on one thread\n", bytes, (processor_ns() - start) / count);
	side_close(&sides[0]);
	side_close(&sides[1]);
}

/* resident is the resident memory of this process in bytes. */
static long resident(void)
{
	long all = 0, now = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f == NULL || fscanf(f, "%ld %ld", &all, &now) != 2)
		FAIL("/proc/self/statm cannot be read");
	fclose(f);
	return now * 4096;
}

void measure_connections(int count)
{
	struct side client, server;
	struct fid_ep **eps = calloc((size_t)count * 2, sizeof(*eps));
	struct fi_cq_data_entry e;
	long before, after;
	int i;

	section = "connections";
	if (eps == NULL)
		FAIL("no memory");
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	before = resident();
	for (i = 0; i < count; i++) {
		connect_sides(&client, &server);
		post_receive(&server, 0, 8);
		post_send(&client, 0, 8);
		WANT(next(&server, &e), 0);
		WANT(next(&client, &e), 0);
		eps[2 * i] = client.ep;
		eps[2 * i + 1] = server.ep;
		client.ep = server.ep = NULL;
	}
	after = resident();
	printf("%d connections: %.1f KiB for each end\n", count, (double)(after - before) / 1024 / count / 2);
	for (i = 0; i < 2 * count; i++)
		WANT(fi_close(&eps[i]->fid), 0);
	free(eps);
	side_close(&client);
	side_close(&server);
}
