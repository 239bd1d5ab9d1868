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
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// gates are the features of Kubernetes that shares and taints need.
const gates = "--feature-gates=DRAConsumableCapacity=true,DRADeviceTaints=true"

// cluster is a real API server on etcd, which end with the test.
type cluster struct {
	t          *testing.T
	ctx        context.Context
	admin      kubernetes.Interface
	address    string
	token      string
	kubeconfig string
	arguments  []string // of the API server
	server     *exec.Cmd
}

// program returns the program that a variable names; without it the test is skipped.
func (c *cluster) program(variable string) string {
	path := os.Getenv(variable)
	if path == "" {
		c.t.Skip(variable + " is not set: ci/kubernetes/run sets it")
	}
	return path
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	t.Cleanup(cancel)
	c := &cluster{t: t, ctx: ctx, token: rand.Text()}
	etcd := c.program("TRAPEZE_ETCD")
	folder := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		must.OK(t, os.WriteFile(path, text, 0o600))
		return path
	}
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	keyFile := file("key.pem", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	tokens := file("tokens.csv", []byte(c.token+",tester,1,system:masters\n"))
	store, peer := freePort(t), freePort(t)
	c.address = freePort(t)
	startProgram(t, etcd, "--data-dir="+filepath.Join(folder, "etcd"), "--listen-client-urls=http://"+store, "--advertise-client-urls=http://"+store,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	_, number, err := net.SplitHostPort(c.address)
	must.OK(t, err)
	c.arguments = []string{"--etcd-servers=http://" + store, "--bind-address=127.0.0.1", "--secure-port=" + number, "--cert-dir=" + filepath.Join(folder, "certs"),
		"--token-auth-file=" + tokens, "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + keyFile, "--service-account-signing-key-file=" + keyFile, "--service-cluster-ip-range=10.0.0.0/24",
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition", "--allow-privileged=true", gates}
	c.kubeconfig = file("kubeconfig", fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: %s}}],
clusters: [{name: c, cluster: {server: "https://%s", insecure-skip-tls-verify: true}}]}
`, c.token, c.address))
	c.admin = c.client(c.way(c.token))
	c.startServer()
	return c
}

// startServer starts the API server, and waits until it is ready.
func (c *cluster) startServer() {
	c.t.Helper()
	server := startProgram(c.t, c.program("TRAPEZE_KUBE_APISERVER"), c.arguments...)
	c.server = server
	// Asked to end, it waits a minute for clients that watch.
	c.t.Cleanup(func() { _ = server.Process.Kill() })
	c.eventually("a ready API server", func() bool {
		answer, err := c.admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(c.ctx)
		return err == nil && string(answer) == "ok"
	})
}

func (c *cluster) eventually(what string, is func() bool) {
	c.t.Helper()
	(&kubelet{t: c.t, ctx: c.ctx}).eventually(what, is)
}

func (c *cluster) stopServer() {
	c.t.Helper()
	must.OK(c.t, c.server.Process.Signal(syscall.SIGKILL))
	_ = c.server.Wait() // it says that it was killed
}

func (c *cluster) way(token string) *rest.Config {
	return &rest.Config{Host: "https://" + c.address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func (c *cluster) client(way *rest.Config) kubernetes.Interface {
	c.t.Helper()
	return must.Get(kubernetes.NewForConfig(way))(c.t)
}

// config is the way of a service account to the server, with a token as its pods have it.
func (c *cluster) config(namespace, account string) *rest.Config {
	c.t.Helper()
	r := must.Get(c.admin.CoreV1().ServiceAccounts(namespace).CreateToken(c.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(c.t)
	way := c.way(r.Status.Token)
	way.WarningHandler = warnings{c.t}
	return way
}

// warnings makes a test fail if the server warns of what our programs ask.
type warnings struct{ t *testing.T }

func (w warnings) HandleWarningHeader(_ int, _, text string) {
	w.t.Errorf("the API server warns: %s", text)
}

// as is the client of a service account.
func (c *cluster) as(namespace, account string) kubernetes.Interface {
	return c.client(c.config(namespace, account))
}

func (c *cluster) kubectl(arguments ...string) {
	c.t.Helper()
	must.OK(c.t, c.try(arguments...))
}

func (c *cluster) try(arguments ...string) error {
	out, err := exec.CommandContext(c.ctx, c.program("TRAPEZE_KUBECTL"), append([]string{"--kubeconfig=" + c.kubeconfig}, arguments...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %q: %w: %s", arguments, err, out)
	}
	return nil
}

// freePort is an address of this host that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

// freeUDPPort is a port that was free just now.
func freeUDPPort(t *testing.T) string {
	t.Helper()
	l := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.LocalAddr().String())
	must.OK(t, err)
	return port
}
