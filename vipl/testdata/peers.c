/* Connections between peers: DEVICE DEVICE. */
#include "pair.h"

static struct side a, b;

int main(int argc, char **argv)
{
	VIP_VI_ATTRIBUTES other = {0};
	union any_address here, there;
	VIP_VI_HANDLE x, y;
	VIP_VI_STATE state;
	VIP_RETURN r;
	int round;

	if (argc != 3)
		return 2;
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	x = make_vi(&a, NULL, NULL);
	y = make_vi(&b, NULL, NULL);
	set_address(&here, &a.about, "one");
	set_address(&there, &b.about, "two");
	IS(VipConnectPeerDone(x, &other), VIP_INVALID_STATE);
	IS(VipConnectPeerWait(x, &other), VIP_INVALID_STATE);
	IS(VipConnectPeerRequest(x, &here.net, &there.net, 0), VIP_INVALID_PARAMETER);
	IS(VipConnectPeerRequest(x, &here.net, &here.net, 10), VIP_INVALID_PARAMETER);
	IS(VipConnectPeerRequest(x, NULL, &there.net, 10), VIP_INVALID_PARAMETER);
	IS(VipConnectPeerRequest(x, &here.net, NULL, 10), VIP_INVALID_PARAMETER);

	/* Nobody asks for this one. */
	OK(VipConnectPeerRequest(x, &here.net, &there.net, 50));
	IS(VipConnectPeerWait(x, &other), VIP_TIMEOUT);
	state = state_of(x);
	CHECK(state == VIP_STATE_IDLE);

	for (round = 0; round < 3; round++) {
		OK(VipConnectPeerRequest(x, &here.net, &there.net, PATIENCE));
		IS(VipConnectPeerRequest(x, &here.net, &there.net, PATIENCE), VIP_INVALID_STATE);
		IS(VipConnectPeerDone(x, &other), VIP_NOT_DONE);
		state = state_of(x);
		CHECK(state == VIP_STATE_CONNECT_PENDING);
		OK(VipConnectPeerRequest(y, &there.net, &here.net, VIP_INFINITE));
		OK(VipConnectPeerWait(y, &other));
		CHECK(other.MaxTransferSize == 32768 && other.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
		while ((r = VipConnectPeerDone(x, NULL)) == VIP_NOT_DONE)
			;
		OK(r);
		exchange(&a, &b, x, y, 1000);
		exchange(&b, &a, y, x, 1000);
		OK(VipDisconnect(x));
		OK(VipDisconnect(y));
	}

	/* Given up. */
	OK(VipConnectPeerRequest(x, &here.net, &there.net, VIP_INFINITE));
	OK(VipDisconnect(x));
	IS(VipConnectPeerWait(x, &other), VIP_INVALID_STATE);
	OK(VipConnectPeerRequest(x, &here.net, &there.net, VIP_INFINITE));
	IS(VipDestroyVi(x), VIP_INVALID_STATE);
	OK(VipCloseNic(a.nic)); /* ends that too */
	free(a.start);
	OK(VipDestroyVi(y));
	close_side(&b);
	return failures != 0;
}
