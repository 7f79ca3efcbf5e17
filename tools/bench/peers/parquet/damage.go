package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	copies       = 200 // damaged ones of each file
	longest      = 10 * time.Second
	addressSpace = 8 << 30
)

// request asks a process to read a copy of a file. Copy 0 is as it is.
type request struct {
	Path  string
	Copy  int
	Pages bool // the damage is a changed bit in the pages
}

// answer is what became of it.
type answer struct {
	Digest         uint64
	Error, Panic   string
	AllocatedBytes uint64
}

// damaged is a copy of a file with damage that its number decides.
func damaged(data []byte, number int, pages bool) []byte {
	data = slices.Clone(data)
	r := rand.New(rand.NewPCG(1, uint64(number)))
	at, footer := r.IntN(len(data)), len(data)-8-int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	if pages {
		data[4+r.IntN(footer-4)] ^= 1 << r.IntN(8)
		return data
	}
	switch number % 5 {
	case 0:
		data[at] ^= 1 << r.IntN(8)
	case 1:
		data[footer+r.IntN(len(data)-footer)] ^= 1 << r.IntN(8)
	case 2:
		for range 1 + r.IntN(8) {
			data[r.IntN(len(data))] = byte(r.IntN(256))
		}
	case 3:
		data = data[:at]
	case 4:
		data = slices.Delete(data, at, min(len(data), at+1+r.IntN(50)))
	}
	return data
}

// serve reads files by a library, as requests on standard input say.
func serve(name string) error {
	if err := unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: addressSpace, Max: addressSpace}); err != nil {
		return err
	}
	i := slices.IndexFunc(libraries, func(l library) bool { return l.name == name })
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return nil // the other side has ended
		}
		data, err := os.ReadFile(r.Path)
		if err != nil {
			return err
		}
		if r.Copy > 0 {
			data = damaged(data, r.Copy, r.Pages)
		}
		if err := out.Encode(read(libraries[i], data)); err != nil {
			return err
		}
	}
}

func read(l library, data []byte) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a.Panic = fmt.Sprint(p)
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	digest, err := l.digest(data)
	runtime.ReadMemStats(&after)
	a = answer{Digest: digest, AllocatedBytes: after.TotalAlloc - before.TotalAlloc}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// reader is a process that reads files.
type reader struct {
	library string
	command *exec.Cmd
	in      *json.Encoder
	answers chan answer // closed when the process has ended
}

// start starts the process, unless it runs.
func (r *reader) start() error {
	if r.command != nil {
		return nil
	}
	r.command = exec.Command(os.Args[0], "read", r.library)
	in, err := r.command.StdinPipe()
	if err != nil {
		return err
	}
	out, err := r.command.StdoutPipe()
	if err != nil {
		return err
	}
	answers := make(chan answer)
	r.in, r.answers = json.NewEncoder(in), answers
	go func() {
		defer close(answers)
		for decoder := json.NewDecoder(bufio.NewReader(out)); ; {
			var a answer
			if decoder.Decode(&a) != nil {
				return
			}
			answers <- a
		}
	}()
	return r.command.Start()
}

// stop ends the process.
func (r *reader) stop() {
	if r.command != nil {
		_ = r.command.Process.Kill()
		_ = r.command.Wait()
		r.command = nil
	}
}

var errEnded, errLong = errors.New("the process ended"), errors.New("no end in ten seconds")

// read lets the process read a copy of a file.
func (r *reader) read(what request) (answer, error) {
	if err := r.start(); err != nil {
		return answer{}, err
	}
	if err := r.in.Encode(what); err != nil {
		return answer{}, err
	}
	select {
	case a, ok := <-r.answers:
		if ok {
			return a, nil
		}
		r.stop()
		return answer{}, errEnded
	case <-time.After(longest):
		answers := r.answers
		r.stop()
		for range answers { // until the process has ended
		}
		return answer{}, errLong
	}
}

// tally is what became of the copies of files.
type tally struct {
	copies, panics, ended, long int
	other                       int // read with other values and without an error
	most                        uint64
}

// add reads a damaged copy of a file. want is the answer without damage.
func (t *tally) add(r *reader, what request, want answer) error {
	t.copies++
	got, err := r.read(what)
	t.most = max(t.most, got.AllocatedBytes)
	switch {
	case errors.Is(err, errEnded):
		t.ended++
	case errors.Is(err, errLong):
		t.long++
	case err != nil:
		return err
	case got.Panic != "":
		t.panics++
	case got.Error == "" && got.Digest != want.Digest:
		t.other++
	}
	return nil
}

// damage prints a table of what becomes of files and of their damaged copies. The pages of files whose names begin with
// "checked" have checksums; of these, copies with a bit changed in the pages are read too.
func damage(paths []string) error {
	fmt.Println("| | files read | damaged copies | panics | process ended | no end in 10 s | most memory | other " +
		"values, no error | the same, pages with checksums |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, l := range libraries {
		r := &reader{library: l.name}
		var any, checked tally
		whole := 0
		for _, path := range paths {
			want, err := r.read(request{Path: path})
			if err != nil && !errors.Is(err, errEnded) && !errors.Is(err, errLong) {
				return err
			}
			if err != nil || want.Error != "" || want.Panic != "" {
				fmt.Fprintln(os.Stderr, l.name, path, err, want.Error, want.Panic)
				continue
			}
			whole++
			for number := 1; number <= copies; number++ {
				err := any.add(r, request{path, number, false}, want)
				if err == nil && strings.HasPrefix(filepath.Base(path), "checked") {
					err = checked.add(r, request{path, number, true}, want)
				}
				if err != nil {
					return err
				}
			}
		}
		r.stop()
		fmt.Printf("| %s | %d of %d | %d | %d | %d | %d | %d MiB | %d | %d of %d |\n",
			l.name, whole, len(paths), any.copies, any.panics, any.ended, any.long, any.most>>20, any.other,
			checked.other, checked.copies)
	}
	return nil
}
