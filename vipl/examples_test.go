package main

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// examples builds examples/vipl as its reader does, and returns where the programs are.
func examples(t testing.TB) string {
	t.Helper()
	build := t.TempDir()
	c := exec.Command("make", "-C", "../examples/vipl", "BUILD="+build, "CFLAGS=-O2 -Wall -Wextra -Werror")
	c.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(installed, "lib", "pkgconfig"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("make: %v\n%s", err, out)
	}
	return build
}

// TestReadme: the program that the README compiles starts, wherever the library is.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(readme), "\nexport PKG_CONFIG_PATH=")
	_, lines, _ = strings.Cut(lines, "\n")
	lines, _, _ = strings.Cut(lines, "```")
	folder := t.TempDir()
	source := "#include <vipl.h>\nint main(void) { VIP_NIC_HANDLE nic; return VipOpenNic(\"nic0\", &nic); }\n"
	if err := os.WriteFile(filepath.Join(folder, "program.c"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	c := command(t, "sh", "-e", "-c", strings.ReplaceAll(lines, "/tmp/wire", folder+"/wire"))
	c.Dir = folder
	c.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(installed, "lib", "pkgconfig"))
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(lines, "./program") {
		t.Errorf("%s: %v\n%s", lines, err, out)
	}
}

// server is a program that waits to be connected with.
type server struct {
	*exec.Cmd
	address string
	stderr  bytes.Buffer
}

// serve starts a program, and returns once it has said at which address it waits.
func serve(t testing.TB, program string, args ...string) *server {
	t.Helper()
	s := &server{Cmd: command(t, program, args...)}
	s.Cmd.Stderr = &s.stderr
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v %v\n%s", program, err, s.Wait(), &s.stderr)
	}
	s.address = strings.TrimSpace(line)
	return s
}

// succeed waits for a server to end well.
func (s *server) succeed(t testing.TB) {
	t.Helper()
	if err := s.Wait(); err != nil {
		t.Fatalf("server: %v\n%s", err, &s.stderr)
	}
}

// goEnd opens a NIC for package via.
func goEnd(t testing.TB, address string) *copier {
	t.Helper()
	n, err := via.Open(conform.Context(t), address, via.Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := newCopier(conform.Context(t), n)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFileCopy copies files between two processes, C and Go in each part, with sends and
// with RDMA writes.
func TestFileCopy(t *testing.T) {
	program := filepath.Join(examples(t), "filecopy")
	for _, mode := range []string{"", "write"} {
		for _, size := range []int{0, 1, whole, 5*whole + 1, 3_000_001} {
			sent := make([]byte, size)
			r := rand.NewChaCha8([32]byte{byte(size)})
			_, _ = r.Read(sent)
			for _, languages := range []string{"C to C", "C to Go", "Go to C"} {
				t.Run(strings.Join([]string{"send" + mode, languages, strconv.Itoa(size) + " bytes"}, "/"), func(t *testing.T) {
					dir := t.TempDir()
					wire := "emu:?wire=shm:" + filepath.Join(dir, "w")
					input, output := filepath.Join(dir, "in"), filepath.Join(dir, "out")
					if err := os.WriteFile(input, sent, 0o600); err != nil {
						t.Fatal(err)
					}
					var to string
					var receiver *server
					got := make(chan []byte, 1)
					if languages == "C to Go" {
						c := goEnd(t, wire)
						to = c.NIC.Query().Address.String()
						go func() {
							b, err := c.receive()
							if err != nil {
								t.Error(err)
							}
							got <- b
						}()
					} else {
						receiver = serve(t, program, wire, output)
						to = receiver.address
					}
					if languages == "Go to C" {
						mac, err := net.ParseMAC(to)
						if err != nil {
							t.Fatal(err)
						}
						if err := goEnd(t, wire).send(via.MAC(mac), sent, mode == "write"); err != nil {
							t.Fatal(err)
						}
					} else {
						args := []string{wire, input, to}
						if mode != "" {
							args = append(args, mode)
						}
						if out, err := command(t, program, args...).CombinedOutput(); err != nil {
							t.Fatalf("sender: %v\n%s", err, out)
						}
					}
					if receiver != nil {
						receiver.succeed(t)
						b, err := os.ReadFile(output)
						if err != nil {
							t.Fatal(err)
						}
						got <- b
					}
					if b := <-got; !bytes.Equal(b, sent) {
						t.Errorf("%d bytes arrived, or changed; %d were sent", len(b), len(sent))
					}
				})
			}
		}
	}
}

// TestPingPong has two processes in C pass messages to and fro.
func TestPingPong(t *testing.T) {
	program := filepath.Join(examples(t), "pingpong")
	for _, size := range []string{"0", "64", "32768"} {
		wire := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "w")
		s := serve(t, program, wire)
		out, err := command(t, program, wire, s.address, "2000", size).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "2000 messages of "+size+" bytes, ") {
			t.Errorf("%v\n%s", err, out)
		}
		s.succeed(t)
	}
}
