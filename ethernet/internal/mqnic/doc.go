// Package mqnic drives Corundum, the open NIC in FPGAs, as ports of package ethernet.
package mqnic
