// Command parquet compares how our decoder of Parquet tables (tools/parquet), github.com/parquet-go/parquet-go and
// Arrow's read damaged copies of small files. It is a module of its own, since nothing else needs these.
//
//	go build -o parquet . && ./parquet FILE...
//
// It reads each file as it is and, if that works, 200 damaged copies: a bit changed anywhere or in the metadata, up
// to eight bytes changed, cut off, some bytes cut out. A file whose name begins with "checked" has pages with
// checksums: 200 more copies have a bit changed in the pages. All is read from memory, by a process with 8 GiB of
// address space that is started again when it ends or takes more than ten seconds for a copy.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	copies       = 200 // damaged ones of each file
	longest      = 10 * time.Second
	addressSpace = 8 << 30
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 2 {
		log.Fatal("usage: parquet FILE...")
	}
	var err error
	if args := os.Args[1:]; len(args) == 5 && args[0] == "read" { // by damage, in processes of their own
		err = read(args[1:])
	} else {
		err = damage(args)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// answer is what became of a copy.
type answer struct {
	Digest         digest
	Error, Panic   string
	AllocatedBytes uint64
}

// read reads copies of a file by a library, from one to the last, and prints an answer for each: LIBRARY FILE FIRST
// LAST. Copy 0 is the file as it is, copies above 200 have a bit changed in the pages.
func read(args []string) error {
	limit := &unix.Rlimit{Cur: addressSpace, Max: addressSpace}
	data, err := os.ReadFile(args[1])
	if err != nil || unix.Setrlimit(unix.RLIMIT_AS, limit) != nil {
		return fmt.Errorf("%s: %v", args[1], err)
	}
	library, _ := strconv.Atoi(args[0])
	first, _ := strconv.Atoi(args[2])
	last, _ := strconv.Atoi(args[3])
	for number := first; number <= last; number++ {
		if err := json.NewEncoder(os.Stdout).Encode(try(library, damaged(data, number))); err != nil {
			return err
		}
	}
	return nil
}

func try(library int, data []byte) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a.Panic = fmt.Sprint(p)
		}
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := libraries[library].read(data)
	runtime.ReadMemStats(&after)
	a = answer{Digest: d, AllocatedBytes: after.TotalAlloc - before.TotalAlloc}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// damaged is a copy of a file with damage that its number decides.
func damaged(data []byte, number int) []byte {
	if number == 0 {
		return data
	}
	data = slices.Clone(data)
	pages := number > copies
	if pages {
		number -= copies
	}
	r := rand.New(rand.NewPCG(1, uint64(number)))
	at, footer := r.IntN(len(data)), len(data)-8-int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	switch {
	case pages:
		data[4+r.IntN(footer-4)] ^= 1 << r.IntN(8)
	case number%5 == 0:
		data[at] ^= 1 << r.IntN(8)
	case number%5 == 1:
		data[footer+r.IntN(len(data)-footer)] ^= 1 << r.IntN(8)
	case number%5 == 2:
		for range 1 + r.IntN(8) {
			data[r.IntN(len(data))] = byte(r.IntN(256))
		}
	case number%5 == 3:
		data = data[:at]
	case number%5 == 4:
		data = slices.Delete(data, at, min(len(data), at+1+r.IntN(50)))
	}
	return data
}

// answers reads copies of a file in a process of its own, which is started again after a copy that ended it or took
// too long, and calls body with each answer; why it has none otherwise.
func answers(library int, path string, first, last int, body func(number int, a answer, why string)) error {
	for number := first; number <= last; {
		c := exec.Command(os.Args[0], "read", strconv.Itoa(library), path, strconv.Itoa(number), strconv.Itoa(last))
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return err
		}
		var late atomic.Bool
		timer := time.AfterFunc(longest, func() { late.Store(true); _ = c.Process.Kill() })
		for from := json.NewDecoder(out); number <= last; number++ {
			var a answer
			if from.Decode(&a) != nil {
				break
			}
			timer.Reset(longest)
			body(number, a, "")
		}
		timer.Stop()
		_ = c.Wait() // a process that failed has no answer
		if number <= last {
			body(number, answer{}, map[bool]string{true: "long", false: "ended"}[late.Load()])
			number++
		}
	}
	return nil
}

// damage prints a table of what becomes of files and of their damaged copies.
func damage(paths []string) error {
	fmt.Println("| | files read | damaged copies | panics | process ended | no end in 10 s | most memory | other " +
		"values, no error | the same, pages with checksums |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for i, l := range libraries {
		count := map[string]int{}
		most := uint64(0)
		for _, path := range paths {
			var whole answer
			var why string
			err := answers(i, path, 0, 0, func(_ int, a answer, w string) { whole, why = a, w })
			if err != nil {
				return err
			}
			if why+whole.Error+whole.Panic != "" {
				fmt.Fprintln(os.Stderr, l.name, path, why, whole.Error, whole.Panic)
				continue
			}
			count["whole"]++
			last := copies
			if strings.HasPrefix(filepath.Base(path), "checked") {
				last += copies
			}
			err = answers(i, path, 1, last, func(number int, a answer, why string) {
				other := why == "" && a.Panic == "" && a.Error == "" && a.Digest != whole.Digest
				if number > copies {
					count["checked"]++
					if other {
						count["checked other"]++
					}
					return
				}
				count["copies"]++
				most = max(most, a.AllocatedBytes)
				if count[why]++; a.Panic != "" {
					count["panics"]++
				}
				if other {
					count["other"]++
				}
			})
			if err != nil {
				return err
			}
		}
		fmt.Printf("| %s | %d of %d | %d | %d | %d | %d | %d MiB | %d | %d of %d |\n", l.name, count["whole"],
			len(paths), count["copies"], count["panics"], count["ended"], count["long"], most>>20, count["other"],
			count["checked other"], count["checked"])
	}
	return nil
}
