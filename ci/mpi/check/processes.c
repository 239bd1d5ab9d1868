/* Checks with other processes: a child of fork, a peer that is killed, and one that computes. */
#include "check.h"

#include <arpa/inet.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child of a process that has opened a domain gets errors, and the parent goes on. */
void forked(void)
{
	struct side client, server;
	struct fi_cq_data_entry e;
	int status;
	pid_t child;

	section = "fork";
	side_open(&server, true, FI_WAIT_NONE);
	side_open(&client, false, FI_WAIT_NONE);
	connect_sides(&client, &server);
	child = fork();
	if (child == 0)
		_exit(fi_cq_read(client.cq, &e, 1) == -FI_EOPNOTSUPP && fi_send(client.ep, client.memory, 1, NULL, 0, NULL) == -FI_EOPNOTSUPP ? 0 : 1);
	WANT(waitpid(child, &status, 0), child);
	WANT(status, 0);
	post_receive(&server, 0, 8);
	post_send(&client, 0, 8);
	WANT(next(&server, &e), 0);
	side_close(&client);
	side_close(&server);
}

/* serve has another process wait for a client, whose socket it tells; then it does as told. */
static pid_t serve(struct sockaddr_in *at, void (*then)(struct side *server))
{
	int ends_of[2];
	pid_t child;

	WANT(pipe(ends_of), 0);
	child = fork();
	if (child == 0) {
		struct side server;

		WANT(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
		side_open(&server, true, FI_WAIT_NONE);
		*at = address_of(&server);
		WANT(write(ends_of[1], at, sizeof(*at)), sizeof(*at));
		ep_make(&server, server_request(&server, NULL, NULL), 0);
		WANT(fi_accept(server.ep, NULL, 0), 0);
		then(&server);
		_exit(0);
	}
	close(ends_of[1]);
	WANT(read(ends_of[0], at, sizeof(*at)), sizeof(*at));
	close(ends_of[0]);
	return child;
}

/* reach connects to a server in another process. */
static void reach(struct side *client, const struct sockaddr_in *at)
{
	int error;

	side_open(client, false, FI_WAIT_NONE);
	ep_make(client, client->info, 0);
	WANT(fi_connect(client->ep, at, NULL, 0), 0);
	WANT(event(client, NULL, NULL, &error), FI_CONNECTED);
}

static void poll_for_ever(struct side *server)
{
	struct fi_cq_data_entry e;

	for (;;)
		(void)fi_cq_read(server->cq, &e, 1);
}

/* compute makes no call for longer than a peer takes a silent NIC for alive (SPEC.md 8.5: 3 s). */
static void compute(struct side *server)
{
	struct fi_cq_data_entry e;
	int error;

	WANT(event(server, NULL, NULL, &error), FI_CONNECTED);
	sleep(5);
	post_receive(server, 0, 8);
	WANT(next(server, &e), 0);
	side_close(server);
}

/* over_udp puts the next NICs of this process, and of its children, at the first or the second port of UDP, or at none for -1. */
static void over_udp(int which)
{
	int ports = 20000 + getpid() % 20000 * 2;
	char device[128];

	snprintf(device, sizeof(device), "emu:?wire=udp://127.0.0.1:%d&peer=127.0.0.1:%d&engine=inline", ports + which, ports + 1 - which);
	WANT(which >= 0 ? setenv("FI_TRAPEZE_DEVICE", device, 1) : unsetenv("FI_TRAPEZE_DEVICE"), 0);
}

/* A peer that is stopped for longer than its NIC may be silent lives, as its socket shows. Messages may be missing: the
 * queue says so, as well as the events and the receives do. */
static void stopped(pid_t peer, const struct sockaddr_in *at)
{
	struct side client;
	struct fi_cq_data_entry e;
	int error;
	int64_t end;
	ssize_t n;

	section = "a stopped peer over UDP";
	over_udp(0);
	reach(&client, at);
	post_receive(&client, 0, 8);
	WANT(kill(peer, SIGSTOP), 0);
	WANT(fi_inject(client.ep, "x", 1, 0), 0);
	WANT(next(&client, &e), FI_ECANCELED);
	WANT(e.op_context == client.memory, true);
	for (end = milliseconds() + WAIT_MS; (n = fi_cq_read(client.cq, &e, 1)) == -FI_EAGAIN && milliseconds() < end;)
		;
	WANT(n, -FI_ENOTCONN);
	none(&client); /* it is told once */
	WANT(event(&client, NULL, NULL, &error), FI_SHUTDOWN);
	WANT(kill(peer, SIGKILL), 0);
	WANT(waitpid(peer, NULL, 0), peer);
	side_close(&client);
	over_udp(-1);
}

/* Servers in other processes. They are there before anything is opened here, for nothing forks after that. */
void peers(void)
{
	struct side client;
	struct sockaddr_in at_killed, at_silent, at_distant, at_computing;
	struct fi_cq_data_entry e;
	int status, error;
	int64_t end;
	pid_t killed, silent, distant, computing;

	section = "a killed peer";
	killed = serve(&at_killed, poll_for_ever);
	silent = serve(&at_silent, poll_for_ever);
	over_udp(1);
	distant = serve(&at_distant, poll_for_ever);
	over_udp(-1);
	computing = serve(&at_computing, compute);
	reach(&client, &at_killed);
	WANT(kill(killed, SIGKILL), 0);
	WANT(waitpid(killed, NULL, 0), killed);
	WANT(event(&client, NULL, NULL, &error), FI_SHUTDOWN);
	WANT(fi_send(client.ep, client.memory, 1, fi_mr_desc(client.mr), 0, NULL), -FI_ENOTCONN);
	side_close(&client);

	section = "a peer that computes";
	reach(&client, &at_computing);
	post_send(&client, 0, 8);
	WANT(next(&client, &e), 0);
	WANT(waitpid(computing, &status, 0), computing);
	WANT(status, 0);
	side_close(&client);

	/* On one host the kernel tells who is dead. A peer that stands still is not, but it is once it is killed. */
	section = "a stopped peer on this host";
	reach(&client, &at_silent);
	post_receive(&client, 0, 8);
	WANT(kill(silent, SIGSTOP), 0);
	WANT(fi_inject(client.ep, "x", 1, 0), 0);
	for (end = milliseconds() + 6000; milliseconds() < end;)
		WANT(fi_cq_read(client.cq, &e, 1), -FI_EAGAIN);
	WANT(kill(silent, SIGKILL), 0);
	WANT(waitpid(silent, NULL, 0), silent);
	WANT(event(&client, NULL, NULL, &error), FI_SHUTDOWN);
	WANT(next(&client, &e), FI_ECANCELED);
	side_close(&client);
	stopped(distant, &at_distant);
}
