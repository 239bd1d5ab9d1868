/* A rank that computes for longer than a silent NIC is taken for alive, while another one waits for it
 * with a message that is announced first. */
#include <mpi.h>
#include <stdio.h>

static char large[1 << 20];

int main(int argc, char **argv)
{
	volatile unsigned long sum = 0;
	double end;
	int rank, done = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 1) {
		for (end = MPI_Wtime() + 5; MPI_Wtime() < end;)
			sum = sum + 1;
		MPI_Recv(large, sizeof(large), MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		done = large[sizeof(large) - 1] == 7;
		MPI_Send(&done, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
	} else if (rank == 0) {
		large[sizeof(large) - 1] = 7;
		MPI_Send(large, sizeof(large), MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(&done, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		printf("a rank that computed has %s\n", done ? "taken all" : "other bytes");
	}
	MPI_Finalize();
	return 0;
}
