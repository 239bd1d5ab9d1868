/* Checks with other processes: a child of fork, a peer that is killed, and one that computes. */
#include "check.h"

#include <arpa/inet.h>
#include <signal.h>
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

/* Servers in other processes. They are there before anything is opened here, for nothing forks after that. */
void peers(void)
{
	struct side client;
	struct sockaddr_in at_killed, at_computing;
	struct fi_cq_data_entry e;
	int status, error;
	pid_t killed, computing;

	section = "a killed peer";
	killed = serve(&at_killed, poll_for_ever);
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
}
