/* A rank that is stopped for 6 s in the middle of its messages, as by a debugger or a busy host: the job goes on.
 *
 *   stops [MICROSECONDS]     how long after the message of round 100 it stops
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* stop_later makes a child that stops this process for 6 s once it has been told to. */
static int stop_later(useconds_t after)
{
	int ends[2];
	char b;

	if (pipe(ends) != 0)
		exit(2);
	if (fork() == 0) {
		close(ends[1]);
		if (read(ends[0], &b, 1) == 1) {
			usleep(after);
			kill(getppid(), SIGSTOP);
			sleep(6);
			kill(getppid(), SIGCONT);
		}
		_exit(0);
	}
	return ends[1];
}

int main(int argc, char **argv)
{
	static const int sizes[] = {4, 400, 3000, 100000};
	static char b[100000];
	int stop = stop_later(argc > 1 ? (useconds_t)atoi(argv[1]) : 0), rank, ranks, i, wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (i = 0; i < 400; i++) {
		int n = sizes[i % 4], to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;

		if (i == 100 && rank == 1 && write(stop, "s", 1) != 1)
			return 2;
		memset(b, i + rank, (size_t)n);
		MPI_Sendrecv_replace(b, n, MPI_BYTE, to, i, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		wrong += b[0] != (char)(i + from) || b[n - 1] != (char)(i + from);
	}
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d rounds, %d wrong\n", i, wrong);
	MPI_Finalize();
	return 0;
}
