/*
 * Two ranks send a message back and forth. In this folder:
 *
 *   mpicc -O2 -o pingpong pingpong.c
 *   mpirun -n 2 --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'trapeze;ofi_rxm' ./pingpong 64
 *
 * ../../docs/mpi.md says how to install what it needs.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, size, i, n, rounds;
	char *b;
	double start = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	n = argc > 1 ? atoi(argv[1]) : 64;
	rounds = argc > 2 ? atoi(argv[2]) : 1000;
	if (size != 2 || n < 1 || rounds < 1 || (b = calloc(1, (size_t)n)) == NULL) {
		fprintf(stderr, "usage: mpirun -n 2 ... %s [BYTES [ROUNDS]]\n", argv[0]);
		MPI_Abort(MPI_COMM_WORLD, 1);
		return 1;
	}
	for (i = -1; i < rounds; i++) {
		if (i == 0) /* the round before has connected the two */
			start = MPI_Wtime();
		if (rank == 0)
			MPI_Send(b, n, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(b, n, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(b, n, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
	}
	if (rank == 0)
		printf("%d bytes: %.2f us one way\n", n, (MPI_Wtime() - start) / rounds / 2 * 1e6);
	free(b);
	MPI_Finalize();
	return 0;
}
