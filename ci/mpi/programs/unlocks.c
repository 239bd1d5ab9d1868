/*
 * Windows that are locked, written, unlocked and freed at once, 300 of them. Open MPI's osc/pt2pt frees a window without
 * a look at whether its own answers to the last unlocks have been sent, and counts the late ends of such in memory that is
 * somebody else's by then. The program takes that memory, and looks whether it changes. It ends with 1 if it did.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 300, BLOCKS = 64, BLOCK = 1200 };

int main(int argc, char **argv)
{
	static const char zeros[BLOCK];
	int rank, size, i, k, one = 1, sum = 0;
	long wrong = 0, all = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (i = 0; i < WINDOWS; i++) {
		int target = i % size, value = 0;
		char *blocks[BLOCKS];
		MPI_Win w;

		MPI_Win_create(&value, sizeof(value), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w);
		if (rank != target) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w);
			MPI_Accumulate(&one, 1, MPI_INT, target, 0, 1, MPI_INT, MPI_SUM, w);
			MPI_Win_unlock(target, w);
		}
		MPI_Win_free(&w);
		sum += value;
		for (k = 0; k < BLOCKS; k++)
			blocks[k] = calloc(1, BLOCK);
		MPI_Barrier(MPI_COMM_WORLD);
		for (k = 0; k < BLOCKS; k++) {
			wrong += blocks[k] == NULL || memcmp(blocks[k], zeros, BLOCK) != 0;
			free(blocks[k]);
		}
	}
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	wrong += sum != WINDOWS * (size - 1);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d windows: %ld wrong\n", WINDOWS, all);
	MPI_Finalize();
	return all != 0;
}
