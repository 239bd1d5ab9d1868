/* Names of hosts, and discovery: DEVICE DEVICE FILE. The file has "02:00:00:00:00:01 first"
 * and "02:00:00:00:00:02/echo second". */
#include "pair.h"

int main(int argc, char **argv)
{
	union any_address found = {0}, room[4] = {0};
	VIP_NET_ADDRESS *addresses[4] = {&room[0].net, &room[1].net, &room[2].net, &room[3].net};
	VIP_AUTODISCOVERY_LIST list = {.ADAddrArray = addresses, .NumAdAddrs = 4};
	struct side a;
	char name[16];
	VIP_ULONG length = sizeof(name);

	if (argc != 4)
		return 2;
	open_side(&a, argv[1]);
	IS(VipNSInit(a.nic, (VIP_PVOID) "/no/such/file"), VIP_ERROR_NAMESERVICE);
	OK(VipNSInit(a.nic, argv[3]));
	OK(VipNSGetHostByName(a.nic, (VIP_CHAR *)"first", &found.net, 0));
	CHECK(found.net.HostAddressLen == 6 && found.net.DiscriminatorLen == 0);
	CHECK(memcmp(found.net.HostAddress, "\2\0\0\0\0\1", 6) == 0);
	IS(VipNSGetHostByName(a.nic, (VIP_CHAR *)"first", &found.net, 1), VIP_ERROR_NAMESERVICE);
	IS(VipNSGetHostByName(a.nic, (VIP_CHAR *)"first", &found.net, ~0UL), VIP_ERROR_NAMESERVICE);
	IS(VipNSGetHostByName(a.nic, (VIP_CHAR *)"", &found.net, 0), VIP_INVALID_PARAMETER);
	IS(VipNSGetHostByName(a.nic, NULL, &found.net, 0), VIP_INVALID_PARAMETER);
	IS(VipNSGetHostByName(a.nic, (VIP_CHAR *)"first", NULL, 0), VIP_INVALID_PARAMETER);
	/* No more is written than the lengths say that there is room. */
	memset(found.room, 0x55, sizeof(found.room));
	found.net.HostAddressLen = 4;
	found.net.DiscriminatorLen = 0;
	IS(VipNSGetHostByName(a.nic, (VIP_CHAR *)"second", &found.net, 0), VIP_INVALID_PARAMETER);
	CHECK(found.room[4] == 0x55 && found.net.HostAddressLen == 4);
	found.net.HostAddressLen = 6;
	found.net.DiscriminatorLen = 3;
	OK(VipNSGetHostByName(a.nic, (VIP_CHAR *)"second", &found.net, 0));
	CHECK(found.net.DiscriminatorLen == 3 && memcmp(found.net.HostAddress, "\2\0\0\0\0\2ech\x55", 10) == 0);
	memset(&found, 0, sizeof(found)); /* room for any */
	OK(VipNSGetHostByName(a.nic, (VIP_CHAR *)"second", &found.net, 0));
	CHECK(found.net.DiscriminatorLen == 4 && memcmp(found.net.HostAddress, "\2\0\0\0\0\2echo", 10) == 0);
	OK(VipNSGetHostByAddr(a.nic, &found.net, name, &length));
	CHECK(length == 6 && strcmp(name, "second") == 0);
	IS(VipNSGetHostByAddr(a.nic, &found.net, name, &length), VIP_INVALID_PARAMETER); /* no zero byte */
	CHECK(length == 6);
	found.net.HostAddress[5] = 77;
	length = sizeof(name);
	IS(VipNSGetHostByAddr(a.nic, &found.net, name, &length), VIP_ERROR_NAMESERVICE);
	found.net.HostAddressLen = 4;
	IS(VipNSGetHostByAddr(a.nic, &found.net, name, &length), VIP_INVALID_PARAMETER);
	IS(VipNSGetHostByAddr(a.nic, &found.net, NULL, &length), VIP_INVALID_PARAMETER);

	OK(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, &list));
	CHECK(list.NumberOfHops == 1 && list.NumAdAddrs == 3);
	CHECK(memcmp(room[0].net.HostAddress, "\377\377\377\377\377\377", 6) == 0);
	CHECK(memcmp(room[1].net.HostAddress, "\2\0\0\0\0\1", 6) == 0);
	CHECK(memcmp(room[2].net.HostAddress, "\2\0\0\0\0\2echo", 10) == 0);
	memset(room, 0, sizeof(room));
	list.NumAdAddrs = 1;
	OK(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, &list));
	CHECK(list.NumAdAddrs == 3 && room[1].net.HostAddressLen == 0);
	room[0].net.HostAddressLen = 5;
	IS(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, &list), VIP_INVALID_PARAMETER);
	addresses[1] = NULL;
	IS(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, &list), VIP_INVALID_PARAMETER);
	list.ADAddrArray = NULL;
	list.NumAdAddrs = 0;
	OK(VipQuerySystemManagementInfo(a.nic, VIP_SMI_AUTODISCOVERY, &list));
	CHECK(list.NumAdAddrs == 3);
	OK(VipNSShutdown(a.nic));
	close_side(&a);
	return failures != 0;
}
