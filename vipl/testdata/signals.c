/* A handler of a signal that says nothing about its stack, while the library works: DEVICE
 * DEVICE. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/time.h>

#include "pair.h"

#define USED 16384 /* bytes of stack that the handler writes: more than Go's stacks have */

static volatile sig_atomic_t handled;

static void on_alarm(int signal)
{
	volatile char room[USED];
	int i;

	(void)signal;
	for (i = 0; i < USED; i += 64)
		room[i] = (char)i;
	handled += 1 + room[64] * 0;
}

int main(int argc, char **argv)
{
	struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct itimerval every = {{0, 200}, {0, 200}}, never_again = {{0, 0}, {0, 0}};
	struct side a, b;
	VIP_VI_HANDLE x, y;
	VIP_DESCRIPTOR *d;
	long i;

	if (argc != 3)
		return 2;
	sigaction(SIGALRM, &act, NULL);
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	sigaction(SIGALRM, NULL, &act);
	CHECK(act.sa_handler == on_alarm && (act.sa_flags & (SA_ONSTACK | SA_RESTART)) == (SA_ONSTACK | SA_RESTART));
	connect_pair(&a, &b, NULL, NULL, &x, &y);
	NEED(VipPostRecv(y, describe(&b, 2, 16384, 100), b.memory));
	setitimer(ITIMER_REAL, &every, NULL);
	for (i = 0; handled < 200; i++)
		IS(VipRecvDone(y, &d), VIP_NOT_DONE);
	setitimer(ITIMER_REAL, &never_again, NULL);
	disconnect(x);
	disconnect(y);
	close_side(&a);
	close_side(&b);
	return failures != 0;
}
