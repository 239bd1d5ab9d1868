// Package vhost holds tests of virtio ports against a back end of vhost-user that is not
// ours: dpdk-testpmd's net_vhost, of Debian's package dpdk-dev.
//
// Frames go to it and come back, by split and packed queues, and every byte is checked. These
// tests take half a minute and run only where TRAPEZE_VHOST_INTEROP is set, as ci/vhost/run
// does. The benchmark compares with DPDK's own driver, net_virtio_user.
package vhost
