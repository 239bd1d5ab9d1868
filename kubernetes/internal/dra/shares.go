package dra

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
)

// Agent says how trapeze agent is told of the shares that claims have.
type Agent struct {
	// Claims is its folder for them.
	Claims string
	// Cgroups is the root of the control groups of pods: the kubelet's --cgroup-root. Empty is "/".
	Cgroups string
}

// bind makes the agent hold the pods of a claim to its shares. A claim may get more pods later.
func (c *claims) bind(claim *resourceapi.ResourceClaim, s claimState) (err error) {
	for i, d := range s.Devices {
		if d.Share == nil {
			continue
		}
		limits := *d.Share
		for _, pod := range claim.Status.ReservedFor {
			if pod.APIGroup == "" && pod.Resource == "pods" {
				limits.Cgroups = append(limits.Cgroups, PodCgroups(c.agent.Cgroups, pod.UID)...)
			}
		}
		name := cdiName(s.UID, i)
		if e := agentlink.WriteClaim(c.agent.Claims, name, limits); e != nil {
			err = errors.Join(err, fmt.Errorf("tell the agent of share %s: %w", name, e))
		}
	}
	return err
}

// rebind is bind for a claim that is still prepared.
func (c *claims) rebind(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, found, err := c.store.load(claim.UID)
	if err != nil || !found {
		return err
	}
	return c.bind(claim, s)
}

// shares says whether a claim has any of an agent.
func (s claimState) shares() bool {
	return slices.ContainsFunc(s.Devices, func(d prepared) bool { return d.Share != nil })
}

// PodCgroups are the control groups that the kubelet may give a pod below root: one for each class of
// service, by both of its drivers (k8s.io/kubernetes/pkg/kubelet/cm: cgroup_manager_linux.go).
func PodCgroups(root string, pod types.UID) (paths []string) {
	if !goodUID.MatchString(string(pod)) {
		return nil
	}
	above := strings.FieldsFunc(root, func(r rune) bool { return r == '/' })
	for _, class := range []string{"", "burstable", "besteffort"} {
		parts := append(slices.Clone(above), "kubepods")
		if class != "" {
			parts = append(parts, class)
		}
		parts = append(parts, "pod"+string(pod))
		paths = append(paths, "/"+filepath.Join(parts...), systemdSlice(parts))
	}
	return paths
}

// systemdSlice is the path of a group whose parts are names of slices (systemd.slice(5)).
func systemdSlice(parts []string) string {
	path, name := "", ""
	for _, part := range parts {
		if name != "" {
			name += "-"
		}
		name += strings.ReplaceAll(part, "-", "_")
		path += "/" + name + ".slice"
	}
	return path
}
