// Command trapeze-kubernetes offers the NICs of a node to pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

const usage = `Offer the NICs of this node to the pods of a Kubernetes cluster.

It is a driver of Dynamic Resource Allocation (Kubernetes 1.34 and newer). It runs
until SIGINT or SIGTERM; what pods have they keep.

Whole NICs are PCI functions that a driver of Trapeze fits. Giving one to a pod
binds it to vfio-pci, and is refused where the node or another function needs it.

Usage:
  trapeze-kubernetes [flags]

Examples:
  trapeze-kubernetes --node-name "$NODE_NAME"
  trapeze-kubernetes --node-name n1 --kubeconfig ~/.kube/config --emulated 8 --no-whole-nics
  trapeze-kubernetes --node-name n1 --agent name=port0,vis=1024,memory=4Gi,bandwidth=1G

Flags:
`

// ours is the driver of a NIC with our data sheet.
const ours = "trapeze"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "trapeze-kubernetes:", err)
		os.Exit(1)
	}
}

type settings struct {
	nodeName, podUID, kubeconfig, root string
	cdi, kubelet                       string
	emulated                           int
	noWholeNICs, json                  bool
	agents                             []string
	agent                              dra.Agent
	interval                           time.Duration
}

func (s *settings) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("trapeze-kubernetes", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&s.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node in the cluster")
	f.BoolVar(&s.noWholeNICs, "no-whole-nics", false, "leave PCI functions to the node")
	f.StringArrayVar(&s.agents, "agent", nil, "a NIC of trapeze agent, as name=NAME[,socket=PATH][,vis=N][,memory=BYTES][,bandwidth=BYTES a second]; may be given again")
	f.StringVar(&s.agent.Claims, "agent-claims", agentlink.DefaultClaims, "folder in which the agent looks for claims (claims in its file)")
	f.StringVar(&s.agent.Cgroups, "cgroup-root", "/", "control group above those of pods, as the kubelet's --cgroup-root")
	f.IntVar(&s.emulated, "emulated", 0, "how many emulated NICs to offer")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "how to reach the API server; in a pod its service account is used")
	f.StringVar(&s.podUID, "pod-uid", os.Getenv("POD_UID"), "UID of this pod, so that a newer pod can replace it at once")
	f.StringVar(&s.kubelet, "kubelet-dir", "/var/lib/kubelet", "folder of the kubelet")
	f.StringVar(&s.cdi, "cdi-dir", "/var/run/cdi", "folder of the container runtime for CDI files")
	f.StringVar(&s.root, "root", "/", "folder with the node's sys, proc and dev")
	f.DurationVar(&s.interval, "interval", 5*time.Second, "between two looks at the devices, 100ms to 1m")
	f.BoolVar(&s.json, "json", false, "log in JSON")
	return f
}

// run does what the flags say until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var s settings
	flags := s.flags()
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		_, err := fmt.Fprint(stdout, usage, flags.FlagUsages())
		return err
	case err != nil:
		return fmt.Errorf("%w: see --help", err)
	case flags.NArg() > 0:
		return fmt.Errorf("%q is not a flag: see --help", flags.Arg(0))
	}
	if s.interval < 100*time.Millisecond || s.interval > time.Minute {
		return fmt.Errorf("--interval %v: use 100ms to 1m", s.interval)
	}
	var handler slog.Handler = slog.NewTextHandler(stderr, nil)
	if s.json {
		handler = slog.NewJSONHandler(stderr, nil)
	}
	log := slog.New(handler)
	klog.SetSlogLogger(log) // what the libraries of Kubernetes say
	root := hostpci.Root(s.root)
	o := node.Options{Root: root, Own: ours, NoWholeNICs: s.noWholeNICs, Emulated: s.emulated,
		Drivers: append([]hostpci.Driver{{Name: ours, Vendor: datasheet.PCIVendorID, Device: datasheet.PCIDeviceID}}, ethernet.HostDrivers()...)}
	for _, text := range s.agents {
		a, err := parseAgent(text)
		if err != nil {
			return fmt.Errorf("--agent %s: %w", text, err)
		}
		o.Agents = append(o.Agents, a)
	}
	n, err := node.New(o)
	if err != nil {
		return err
	}
	if s.nodeName == "" {
		return errors.New("the name of the node is missing: give --node-name, or set NODE_NAME in the pod by fieldRef spec.nodeName")
	}
	client, err := connect(s.kubeconfig)
	if err != nil {
		return fmt.Errorf("the API server cannot be found: %w: give --kubeconfig outside of a pod", err)
	}
	return dra.Run(ctx, dra.Options{NodeName: s.nodeName, Client: client, Node: n, Root: root, Agent: s.agent, CDI: s.cdi, Plugins: s.kubelet + "/plugins",
		Registry: s.kubelet + "/plugins_registry", Interval: s.interval, PodUID: types.UID(s.podUID), Logger: log})
}

func connect(kubeconfig string) (kubernetes.Interface, error) {
	c, err := rest.InClusterConfig()
	if kubeconfig != "" {
		c, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(c)
}

// parseAgent reads a value of --agent.
func parseAgent(text string) (node.Agent, error) {
	a := node.Agent{Socket: "/run/trapeze/agent.sock"}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		var err error
		switch name {
		case "name":
			a.Name = value
		case "socket":
			a.Socket = value
		case "vis":
			a.VIs, err = strconv.ParseInt(value, 10, 32)
		case "memory":
			a.Memory, err = quantity(value)
		case "bandwidth":
			a.Bandwidth, err = quantity(value)
		default:
			err = fmt.Errorf("%q: use name, socket, vis, memory and bandwidth", name)
		}
		if err != nil {
			return node.Agent{}, err
		}
	}
	return a, nil
}

// quantity reads a number as Kubernetes writes it, such as 4Gi.
func quantity(text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", text, err)
	}
	v, whole := q.AsInt64()
	if !whole {
		return 0, fmt.Errorf("%q is not a whole number", text)
	}
	return v, nil
}
