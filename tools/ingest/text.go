package ingest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/machine"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

const (
	maxLine       = 64 << 20  // bytes of a line: the widest row of features
	maxZstdWindow = 128 << 20 // what zstd itself inflates without being told to
)

// textFile is a text file that is read once, line by line. One that begins as gzip
// or zstd files do is inflated on the way.
type textFile struct {
	path     string
	comments string // lines that begin with one of these, and blank ones, are passed over; "": no line is
	number   int64  // of the line that next returned, from 1
	file     vfs.File
	source   *rememberingReader
	r        *bufio.Reader
	close    func()
	long     []byte
}

func openText(fsys vfs.FS, path, comments string) (_ *textFile, err error) {
	file, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	t := &textFile{path: path, comments: comments, file: file, close: func() {}}
	size, err := file.Size()
	if err != nil {
		file.Close()
		return nil, err
	}
	t.source = &rememberingReader{r: io.NewSectionReader(file, 0, size)}
	t.r = bufio.NewReaderSize(t.source, 1<<18)
	magic, err := t.r.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(t.r)
		if err != nil {
			file.Close()
			return nil, t.readError(err)
		}
		t.r = bufio.NewReaderSize(z, 1<<18)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(t.r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			file.Close()
			return nil, t.readError(err)
		}
		t.r, t.close = bufio.NewReaderSize(z, 1<<18), z.Close
	case err != nil && err != io.EOF:
		file.Close()
		return nil, t.readError(err)
	}
	return t, nil
}

// rememberingReader remembers why reading failed.
type rememberingReader struct {
	r   io.Reader
	err error
}

func (m *rememberingReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil && err != io.EOF {
		m.err = err
	}
	return n, err
}

// readError is the error of the file system if there is one; else what was read
// does not inflate.
func (t *textFile) readError(err error) error {
	if t.source.err != nil {
		return t.source.err
	}
	return fmt.Errorf("%w: %s: after line %d: cannot be inflated: %w", ErrInvalid, t.path, t.number, err)
}

// errorf is ErrInvalid about the line that next returned.
func (t *textFile) errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s: line %d: %w", ErrInvalid, t.path, t.number, fmt.Errorf(format, args...))
}

// at puts the place of the line that next returned into an error about what the
// line says. Errors that are not about the input stay as they are.
func (t *textFile) at(err error) error {
	var file *fs.PathError
	if errors.Is(err, machine.ErrDoesNotFit) || errors.As(err, &file) {
		return err
	}
	return t.errorf("%w", err)
}

// next returns the next line, without its end. It stays valid until the call of
// next after this one. After the last line it returns io.EOF.
func (t *textFile) next() ([]byte, error) {
	for {
		line, err := t.readLine()
		if err != nil {
			return nil, err
		}
		if t.comments != "" {
			if start := bytes.TrimLeft(line, " \t"); len(start) == 0 || strings.IndexByte(t.comments, start[0]) >= 0 {
				continue
			}
		}
		return line, nil
	}
}

func (t *textFile) readLine() ([]byte, error) {
	line, err := t.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		t.long = append(t.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if len(t.long) > maxLine {
				t.number++
				return nil, t.errorf("more than %d bytes long", maxLine)
			}
			line, err = t.r.ReadSlice('\n')
			t.long = append(t.long, line...)
		}
		line = t.long
	}
	if err != nil && err != io.EOF {
		return nil, t.readError(err)
	}
	if err == io.EOF && len(line) == 0 {
		return nil, io.EOF
	}
	if t.number++; t.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func (t *textFile) Close() error {
	t.close()
	return t.file.Close()
}

// separator is what stands between the fields of a line: a comma, a semicolon or
// a tab; ' ' is any run of spaces and tabs. Numbers hold no spaces, so that tabs
// matter only where fields may be any text.
func separator(line []byte, anyText bool) byte {
	for _, sep := range []byte(",;\t") {
		if (sep != '\t' || anyText) && bytes.IndexByte(line, sep) >= 0 {
			return sep
		}
	}
	return ' '
}

// maxFields is more than any line needs: an id and the values of a node.
const maxFields = format.MaxFeatures + 2

// split appends the fields of a line, without the spaces around them and, unless
// they are separated by spaces, without the quotes around them. What is beyond
// maxFields is in the last.
func split(fields [][]byte, line []byte, sep byte) [][]byte {
	if sep == ' ' {
		start := -1 // of the field that we are in
		for i, c := range line {
			switch space := c == ' ' || c == '\t'; {
			case space && start >= 0:
				if fields, start = append(fields, line[start:i]), -1; len(fields) == maxFields {
					return fields
				}
			case !space && start < 0:
				start = i
			}
		}
		if start >= 0 {
			fields = append(fields, line[start:])
		}
		return fields
	}
	for len(fields) < maxFields-1 {
		line = bytes.TrimLeft(line, " ")
		field, rest, more := quoted(line, sep)
		if field == nil {
			field, rest, more = bytes.Cut(line, []byte{sep})
			field = bytes.TrimRight(field, " ")
		}
		if fields, line = append(fields, field), rest; !more {
			return fields
		}
	}
	return append(fields, line)
}

// quoted reads a field in quotes, in which two of them are one, and tells whether
// more fields follow. A line that does not begin with such a field gives nil.
func quoted(line []byte, sep byte) (field, rest []byte, more bool) {
	if len(line) == 0 || line[0] != '"' {
		return nil, nil, false
	}
	pairs := false
	for at := 1; ; {
		end := bytes.IndexByte(line[at:], '"')
		if end < 0 {
			return nil, nil, false
		}
		end += at
		if end+1 < len(line) && line[end+1] == '"' {
			at, pairs = end+2, true
			continue
		}
		rest = bytes.TrimLeft(line[end+1:], " ")
		if len(rest) > 0 && rest[0] != sep {
			return nil, nil, false
		}
		if field = line[1:end]; pairs {
			field = bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))
		}
		if len(rest) == 0 {
			return field, nil, false
		}
		return field, rest[1:], true
	}
}

// parseUint reads decimal digits, and nothing else.
func parseUint(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = 10*v + d
	}
	return v, len(b) > 0
}

// parseFloat reads a number; one that float32 does not hold becomes infinite.
func parseFloat(b []byte) (v float32, ok bool) {
	x, err := strconv.ParseFloat(string(b), 32)
	return float32(x), err == nil || errors.Is(err, strconv.ErrRange)
}

// parseWeight reads the weight of an edge.
func parseWeight(b []byte) (float32, error) {
	w, ok := parseFloat(b)
	if !ok || !(w >= 0) || math.IsInf(float64(w), 0) {
		return 0, fmt.Errorf("weight %.100q (want finite float32, not negative)", b)
	}
	return w, nil
}
