/*
 * Put, get and accumulate between neighbours, by fences and by locks, from a byte to a MiB, and
 * every byte compared. It ends with 1 if one was wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

static int rank, size;
static long wrong;

static char byte(int of, int n, int i) { return (char)(of * 7 + n + i * 13); }

static void compare(const char *what, const char *got, int of, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (got[i] != byte(of, n, i) && wrong++ < 10)
			fprintf(stderr, "rank %d: %s of %d bytes: byte %d is %d\n", rank, what, n, i, got[i]);
}

int main(int argc, char **argv)
{
	int n, next, last, zero = 0, one = 1, total = 0, checks = 0;
	char *window, *mine, *got;
	MPI_Win w, sum;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	next = (rank + 1) % size;
	last = (rank + size - 1) % size;
	MPI_Win_allocate(MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &w);
	mine = malloc(MOST);
	got = malloc(MOST);
	if (mine == NULL || got == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (n = 1; n <= MOST; n *= 4) {
		int i;

		for (i = 0; i < n; i++)
			mine[i] = byte(rank, n, i);
		MPI_Win_fence(0, w);
		MPI_Put(mine, n, MPI_CHAR, next, 0, n, MPI_CHAR, w);
		MPI_Win_fence(0, w);
		compare("put", window, last, n);
		MPI_Win_fence(0, w);
		memcpy(window, mine, (size_t)n);
		MPI_Win_fence(0, w);
		MPI_Get(got, n, MPI_CHAR, next, 0, n, MPI_CHAR, w);
		MPI_Win_fence(0, w);
		compare("get", got, next, n);
		MPI_Win_fence(0, w);
		checks += 2;
	}
	MPI_Win_create(&total, sizeof(total), sizeof(total), MPI_INFO_NULL, MPI_COMM_WORLD, &sum);
	for (n = 0; n < 20; n++) {
		MPI_Win_lock(MPI_LOCK_SHARED, zero, 0, sum);
		MPI_Accumulate(&one, 1, MPI_INT, zero, 0, 1, MPI_INT, MPI_SUM, sum);
		MPI_Win_unlock(zero, sum);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, zero, 0, sum);
	MPI_Get(&n, 1, MPI_INT, zero, 0, 1, MPI_INT, sum);
	MPI_Win_unlock(zero, sum);
	if (n != 20 * size && wrong++ == 0)
		fprintf(stderr, "rank %d: accumulate: %d, not %d\n", rank, n, 20 * size);
	MPI_Win_free(&sum);
	MPI_Win_free(&w);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("one-sided: %d ranks, %d sizes put and got, %ld bytes wrong\n", size, checks / 2, wrong);
	MPI_Finalize();
	return wrong != 0;
}
