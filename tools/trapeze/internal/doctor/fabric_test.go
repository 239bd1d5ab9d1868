package doctor_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
)

// libraries are those that gcc has made, by the function that they have.
var libraries = map[string][]byte{}

// library makes a library with a function.
func library(t *testing.T, path, symbol string) {
	t.Helper()
	if libraries[symbol] == nil {
		source, made := filepath.Join(t.TempDir(), "l.c"), filepath.Join(t.TempDir(), "l.so")
		must.OK(t, os.WriteFile(source, []byte("int "+symbol+"(void) { return 0; }\n"), 0o600))
		out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", made, source).CombinedOutput()
		must.Hold(t, err == nil, "%v\n%s", err, out)
		content := must.Get(os.ReadFile(made))(t)
		libraries[symbol] = content
	}
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.OK(t, os.WriteFile(path, libraries[symbol], 0o755))
}

// fabricHost makes a host where programs find the provider.
func fabricHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	library(t, filepath.Join(root, "usr/lib/libfabric.so.1"), "fi_getinfo")
	library(t, filepath.Join(root, "opt/fi/libtrapeze-fi.so"), "fi_prov_ini")
	library(t, filepath.Join(root, "opt/vipl/libvipl.so.1"), "VipCQDone")
	return root
}

func TestFabric(t *testing.T) {
	_, err := exec.LookPath("gcc")
	must.Hold(t, err == nil, "gcc is missing: install it")
	good := map[string]string{"FI_PROVIDER_PATH": "+/opt/fi", "LD_LIBRARY_PATH": "/opt/vipl"}
	for _, c := range []struct {
		name, check, says string
		change            func(root string, env map[string]string)
	}{
		{"nothing wrong", "", "", func(string, map[string]string) {}},
		{"a list that has it", "", "", func(_ string, env map[string]string) { env["FI_PROVIDER"] = "trapeze;ofi_rxm" }},
		{"a list without it", "filter", "leaves trapeze out", func(_ string, env map[string]string) { env["FI_PROVIDER"] = "tcp" }},
		{"a list that excludes it", "filter", "leaves trapeze out", func(_ string, env map[string]string) { env["FI_PROVIDER"] = "^verbs,trapeze" }},
		{"no libfabric", "libfabric", "in none of", func(root string, _ map[string]string) { os.Remove(filepath.Join(root, "usr/lib/libfabric.so.1")) }},
		{"no provider", "provider", "in none of", func(_ string, env map[string]string) { env["FI_PROVIDER_PATH"] = "/opt/elsewhere" }},
		{"no provider in the usual place", "provider", "/usr/lib/libfabric", func(_ string, env map[string]string) { delete(env, "FI_PROVIDER_PATH") }},
		{"another library for it", "provider", "has no fi_prov_ini", func(root string, _ map[string]string) {
			library(t, filepath.Join(root, "opt/fi/libtrapeze-fi.so"), "other")
		}},
		{"half a provider", "provider", "cannot be used", func(root string, _ map[string]string) {
			os.Truncate(filepath.Join(root, "opt/fi/libtrapeze-fi.so"), 100)
		}},
		{"no libvipl", "libvipl", "in none of", func(_ string, env map[string]string) { delete(env, "LD_LIBRARY_PATH") }},
		{"a bad address", "device", "FI_TRAPEZE_DEVICE", func(_ string, env map[string]string) { env["FI_TRAPEZE_DEVICE"] = "emu:?wire=nonsense" }},
		{"a good address", "", "", func(_ string, env map[string]string) { env["FI_TRAPEZE_DEVICE"] = "emu:?wire=host:x" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			root, env := fabricHost(t), map[string]string{}
			for k, v := range good {
				env[k] = v
			}
			c.change(root, env)
			r := doctor.Fabric(hostpci.Root(root), func(name string) string { return env[name] })
			must.Be(t, r.CouldStart, c.check == "", "could start, with %+v", r.Host)
			for _, f := range r.Host {
				if (f.Severity == doctor.Error) != (f.Check == c.check) || f.Check == c.check && (!strings.Contains(f.What, c.says) || len(f.Fix) == 0) {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}
