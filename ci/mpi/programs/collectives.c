/*
 * All collectives of MPI that programs use, in several sizes, with every result compared with
 * what it must be. It prints how many it has checked, and ends with 1 if one was wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;
static long checked, wrong;

/* value is what a rank contributes at an index. */
static int value(int of, long i) { return (int)((of + 1) * 1000003L + i * 31); }

/* sum_of is what the ranks from 0 to last add up to at an index, as ints wrap. */
static int sum_of(int last, long i)
{
	unsigned s = 0;
	int r;

	for (r = 0; r <= last; r++)
		s += (unsigned)value(r, i);
	return (int)s;
}

static void check(const char *what, long i, int got, int want)
{
	checked++;
	if (got != want && wrong++ < 10)
		fprintf(stderr, "rank %d: %s, element %ld: %d, not %d\n", rank, what, i, got, want);
}

static int *room(long n)
{
	int *p = malloc((size_t)n * sizeof(int));

	if (p == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	return p;
}

static void all(int n)
{
	int *mine = room(n), *many = room((long)n * size), *out = room((long)n * size), root, r, i;

	for (i = 0; i < n; i++)
		mine[i] = value(rank, i);
	for (root = 0; root < size; root++) {
		for (i = 0; i < n; i++)
			out[i] = rank == root ? value(root, i) : -1;
		MPI_Bcast(out, n, MPI_INT, root, MPI_COMM_WORLD);
		for (i = 0; i < n; i++)
			check("Bcast", i, out[i], value(root, i));
		MPI_Reduce(mine, out, n, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
		for (i = 0; rank == root && i < n; i++)
			check("Reduce", i, out[i], sum_of(size - 1, i));
		MPI_Gather(mine, n, MPI_INT, out, n, MPI_INT, root, MPI_COMM_WORLD);
		for (r = 0; rank == root && r < size; r++)
			for (i = 0; i < n; i++)
				check("Gather", i, out[r * n + i], value(r, i));
		for (r = 0; r < size; r++)
			for (i = 0; i < n; i++)
				many[r * n + i] = value(r, i) ^ root;
		MPI_Scatter(many, n, MPI_INT, out, n, MPI_INT, root, MPI_COMM_WORLD);
		for (i = 0; i < n; i++)
			check("Scatter", i, out[i], value(rank, i) ^ root);
	}
	MPI_Allreduce(mine, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < n; i++)
		check("Allreduce", i, out[i], sum_of(size - 1, i));
	MPI_Scan(mine, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < n; i++)
		check("Scan", i, out[i], sum_of(rank, i));
	MPI_Exscan(mine, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; rank > 0 && i < n; i++)
		check("Exscan", i, out[i], sum_of(rank - 1, i));
	MPI_Allgather(mine, n, MPI_INT, out, n, MPI_INT, MPI_COMM_WORLD);
	for (r = 0; r < size; r++)
		for (i = 0; i < n; i++)
			check("Allgather", i, out[r * n + i], value(r, i));
	for (r = 0; r < size; r++)
		for (i = 0; i < n; i++)
			many[r * n + i] = value(rank, i) + r;
	MPI_Alltoall(many, n, MPI_INT, out, n, MPI_INT, MPI_COMM_WORLD);
	for (r = 0; r < size; r++)
		for (i = 0; i < n; i++)
			check("Alltoall", i, out[r * n + i], value(r, i) + rank);
	for (r = 0; r < size; r++)
		for (i = 0; i < n; i++)
			many[r * n + i] = value(rank, i) - r;
	MPI_Reduce_scatter_block(many, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < n; i++)
		check("Reduce_scatter", i, out[i], (int)((unsigned)sum_of(size - 1, i) - (unsigned)(size * rank)));
	MPI_Barrier(MPI_COMM_WORLD);
	free(mine), free(many), free(out);
}

int main(int argc, char **argv)
{
	static const int sizes[] = {1, 17, 1000, 20000, 100000};
	long total;
	size_t i;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		all(sizes[i]);
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce(&checked, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("collectives: %d ranks, %ld results checked, %ld wrong\n", size, total, wrong);
	MPI_Finalize();
	return wrong != 0;
}
