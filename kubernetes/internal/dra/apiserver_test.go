package dra_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// TestAPIServer runs the driver against a real API server, on etcd: TRAPEZE_KUBE_APISERVER and
// TRAPEZE_ETCD name the programs, which ci/kubernetes/run builds.
func TestAPIServer(t *testing.T) {
	server, etcd := os.Getenv("TRAPEZE_KUBE_APISERVER"), os.Getenv("TRAPEZE_ETCD")
	if server == "" || etcd == "" {
		t.Skip("TRAPEZE_KUBE_APISERVER and TRAPEZE_ETCD name no programs: ci/kubernetes/run does")
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	client := startAPIServer(ctx, t, server, etcd)
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := &rig{}
	r.run(t, client)
	r.eventually("slices", func() bool {
		return r.device(whole) != nil && r.device("agent-port0") != nil && r.device("emulated-1") != nil
	})
	uid := r.claim("c1", opaque(`{"apiVersion":"nic.trapeze-nic.github.io/v1","kind":"NICParameters","port":9000}`),
		resourceapi.DeviceRequestAllocationResult{Request: "em", Device: "emulated-0"})
	ids, err := r.prepare("c1", uid)
	if err != nil {
		t.Fatal(err)
	}
	// The pod is a process that has what the file says, and no more.
	pod := exec.CommandContext(ctx, "env")
	pod.Env = r.edits(ids).Env
	out, err := pod.Output()
	lines := strings.Fields(string(out))
	slices.Sort(lines)
	if want := []string{"TRAPEZE_DEVICE=emu:?wire=udp://0.0.0.0:9000", "TRAPEZE_DEVICE_EM=emu:?wire=udp://0.0.0.0:9000"}; err != nil || !slices.Equal(lines, want) {
		t.Errorf("the pod has %q, %v", lines, err)
	}
	nic := r.claim("c2", nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	if _, err := r.prepare("c2", nic); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]string{"c1": uid, "c2": nic} {
		if err := r.unprepare(name, uid); err != nil {
			t.Error(err)
		}
	}
	if d, err := hostpci.DriverOf(r.tree.Root(), "0000:03:00.0"); err != nil || d != hostpcitestDriver {
		t.Errorf("%q has the NIC, %v", d, err)
	}
}

// startAPIServer starts etcd and an API server, which end with the test, and waits until it is ready.
func startAPIServer(ctx context.Context, t *testing.T, server, etcd string) kubernetes.Interface {
	t.Helper()
	folder := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := file("key.pem", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	token := rand.Text()
	tokens := file("tokens.csv", []byte(token+",tester,1,system:masters\n"))
	store, peer, port := freePort(t), freePort(t), freePort(t)
	startProgram(t, etcd, "--data-dir="+filepath.Join(folder, "etcd"), "--listen-client-urls=http://"+store, "--advertise-client-urls=http://"+store,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	_, number, err := net.SplitHostPort(port)
	if err != nil {
		t.Fatal(err)
	}
	startProgram(t, server, "--etcd-servers=http://"+store, "--bind-address=127.0.0.1", "--secure-port="+number, "--cert-dir="+filepath.Join(folder, "certs"),
		"--token-auth-file="+tokens, "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+keyFile, "--service-account-signing-key-file="+keyFile, "--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount", "--feature-gates=DRAConsumableCapacity=true,DRADeviceTaints=true")
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + port, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, ctx: ctx}
	k.eventually("a ready API server", func() bool {
		_, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		return err == nil
	})
	return client
}

// freePort is an address of this host that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr())
}
