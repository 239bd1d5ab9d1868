package dra

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/trapeze-nic/trapeze/internal/strict"
)

// Parameters say where the wire of an emulated NIC goes. A claim has them as opaque parameters of
// this driver. They can name nothing of the node.
type Parameters struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Port is the UDP port that the NIC of the pod listens at; 0 for any.
	Port int `json:"port,omitempty"`
	// Peers are HOST:PORT of other NICs, to which frames go before one has been received.
	Peers []string `json:"peers,omitempty"`
}

// What apiVersion and kind of Parameters are.
const (
	ParametersVersion = DriverName + "/v1"
	ParametersKind    = "NICParameters"
)

// Limits of parameters.
const (
	mostParameters = 4096 // bytes
	mostPeers      = 16
)

// ErrParameters is wrapped by the errors of a claim that asks for what cannot be.
var ErrParameters = errors.New("bad parameters of the claim")

// hostName is a DNS name or an IPv4 address. The resolver of the pod reads it.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// parameters are those of a request in a claim. Those of the claim itself replace those of its
// class.
func parameters(claim *resourceapi.ResourceClaim, request string) (Parameters, error) {
	p := Parameters{}
	for _, from := range []resourceapi.AllocationConfigSource{resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim} {
		for _, c := range claim.Status.Allocation.Devices.Config {
			if c.Source != from || c.Opaque == nil || c.Opaque.Driver != DriverName {
				continue
			}
			main, _, _ := strings.Cut(request, "/") // behind the slash is a subrequest
			if len(c.Requests) > 0 && !slices.Contains(c.Requests, request) && !slices.Contains(c.Requests, main) {
				continue
			}
			var err error
			if p, err = ParseParameters(c.Opaque.Parameters.Raw); err != nil {
				return p, err
			}
		}
	}
	return p, nil
}

// ParseParameters reads parameters. Its errors wrap ErrParameters and name the field.
func ParseParameters(raw []byte) (p Parameters, err error) {
	if len(raw) > mostParameters {
		return p, fmt.Errorf("%w: they have %d bytes, at most %d", ErrParameters, len(raw), mostParameters)
	}
	if err := strict.JSON(raw, &p); err != nil {
		return Parameters{}, fmt.Errorf("%w: %w", ErrParameters, err)
	}
	if err := p.check(); err != nil {
		return Parameters{}, err
	}
	return p, nil
}

func (p Parameters) check() error {
	switch {
	case p.APIVersion != ParametersVersion || p.Kind != ParametersKind:
		return fmt.Errorf("%w: apiVersion %.100q and kind %.100q: use %s and %s", ErrParameters, p.APIVersion, p.Kind, ParametersVersion, ParametersKind)
	case p.Port < 0 || p.Port > 65535:
		return fmt.Errorf("%w: port %d: use 0 to 65535", ErrParameters, p.Port)
	case len(p.Peers) > mostPeers:
		return fmt.Errorf("%w: peers: %d of them, at most %d", ErrParameters, len(p.Peers), mostPeers)
	}
	for _, peer := range p.Peers {
		host, port, _ := strings.Cut(peer, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || !hostName.MatchString(host) {
			return fmt.Errorf("%w: peers: %.300q: use HOST:PORT", ErrParameters, peer)
		}
	}
	return nil
}

// Address is that of an emulated NIC with these parameters.
func (p Parameters) Address() string {
	a := fmt.Sprintf("emu:?wire=udp://0.0.0.0:%d", p.Port)
	if len(p.Peers) > 0 {
		a += "&peer=" + strings.Join(p.Peers, ",")
	}
	return a
}

// share is the address of a share of an agent's NIC, of the size that the scheduler has granted.
func share(agent string, granted map[resourceapi.QualifiedName]int64) string {
	q := url.Values{}
	for _, name := range []resourceapi.QualifiedName{capacityVIs, capacityMemory, capacityBandwidth} {
		if v, ok := granted[name]; ok {
			q.Set(optionOf[name], strconv.FormatInt(v, 10))
		}
	}
	if len(q) == 0 {
		return agent
	}
	return agent + "?" + q.Encode()
}

// optionOf are the options of agent: addresses for capacities.
var optionOf = map[resourceapi.QualifiedName]string{capacityVIs: "vis", capacityMemory: "memory", capacityBandwidth: "rate"}
