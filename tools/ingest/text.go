package ingest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/hopfeed/hopfeed/format"
	"github.com/hopfeed/hopfeed/internal/vfs"
)

const (
	maxLine       = 64 << 20  // bytes of a line: the widest row of features
	maxZstdWindow = 128 << 20 // what zstd itself inflates without being told to
)

// textFile is a text file, or several that follow each other, read once, line by line. One that begins as gzip or zstd
// files do is inflated on the way.
type textFile struct {
	path     string // of the present file
	comments string // lines that begin with one of these, and blank ones, are passed over; "": no line is
	skipped  []byte // the header, with which each file begins that is not empty; nil: none
	number   int64  // of the line that next returned, from 1
	fsys     vfs.FS
	rest     []string // files after the present one
	begun    bool     // a line of the present file that is no comment has been read
	file     vfs.File
	r        *bufio.Reader
	close    func()
	long     []byte
	last     []byte // that next returned
}

// openText opens a text file, or a folder of such as Spark writes it: part-*, in the order of their names.
func openText(fsys vfs.FS, path, comments string) (*textFile, error) {
	info, err := stat(fsys, path)
	if err != nil {
		return nil, err
	}
	t := &textFile{fsys: fsys, comments: comments, rest: []string{path}}
	if info.IsDir() {
		if t.rest, err = partFiles(fsys, path); err != nil {
			return nil, err
		}
	}
	if len(t.rest) == 0 {
		return nil, invalid(path, "a folder without edges.csv and without files part-*, as Spark writes them")
	}
	return t, t.openNext()
}

// partFiles are the files of a folder that Spark wrote, in the order of their names.
func partFiles(fsys vfs.FS, dir string) (paths []string, err error) {
	entries, err := fsys.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() && strings.HasPrefix(e.Name(), "part-") && !strings.HasSuffix(e.Name(), ".crc") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// openNext goes to the next file. Where it fails, none is open.
func (t *textFile) openNext() (err error) {
	path := t.rest[0]
	file, err := t.fsys.Open(path)
	if err != nil {
		return err
	}
	defer closeOnError(&err, t)
	t.path, t.rest, t.number, t.begun, t.file, t.close = path, t.rest[1:], 0, false, file, func() {}
	size, err := file.Size()
	if err != nil {
		return err
	}
	buffer := int(min(1<<18, 1<<12+16*size))
	t.r = bufio.NewReaderSize(io.NewSectionReader(file, 0, size), buffer)
	magic, err := t.r.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(t.r)
		if err != nil {
			return t.readError(err)
		}
		t.r = bufio.NewReaderSize(z, buffer)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(t.r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return t.readError(err)
		}
		t.r, t.close = bufio.NewReaderSize(z, buffer), z.Close
	case err != nil && err != io.EOF:
		return t.readError(err)
	}
	start, _ := t.r.Peek(1 << 16) // an error shows when the first line is read
	switch {
	case isHTML(start[:min(len(start), 256)]):
		return fmt.Errorf("%w: %s looks like an HTML page, not like data: was there an error when it was downloaded?",
			ErrInvalid, path)
	case isUTF16(start):
		return fmt.Errorf("%w: %s is text in UTF-16, as Excel writes Unicode text: save it as CSV UTF-8, or "+
			"convert it by iconv -f UTF-16 -t UTF-8", ErrInvalid, path)
	case bytes.IndexByte(start, '\n') < 0 && bytes.IndexByte(bytes.TrimRight(start, "\r"), '\r') >= 0:
		return fmt.Errorf("%w: %s has lines that end with a carriage return alone, as on old Macintoshes: convert "+
			"it by tr '\\r' '\\n'", ErrInvalid, path)
	}
	return nil
}

// isUTF16 tells whether a file begins as text in UTF-16 does: with its mark, or with a zero in every other byte.
func isUTF16(start []byte) bool {
	if bytes.HasPrefix(start, []byte{0xff, 0xfe}) || bytes.HasPrefix(start, []byte{0xfe, 0xff}) {
		return true
	}
	start = start[:min(len(start), 256)]
	return len(start) > 3 && bytes.Count(start, []byte{0}) >= len(start)/3
}

// fieldsError is the error that the line that next returned has another number of fields. What is in quotes may have
// been cut by a line feed in it.
func (t *textFile) fieldsError(format string, args ...any) error {
	if bytes.Count(t.last, []byte{'"'})%2 == 1 {
		format += "; if a quoted field goes on in another line: that is not read, so write each row in one line"
	}
	return t.errorf(format, args...)
}

func isHTML(start []byte) bool {
	start = bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf")), " \t\r\n"))
	for _, tag := range []string{"<!doctype html", "<html", "<head", "<?xml"} {
		if bytes.HasPrefix(start, []byte(tag)) {
			return true
		}
	}
	return false
}

// readError is the error of the file system if there is one; else what was read does not inflate.
func (t *textFile) readError(err error) error {
	if vfs.Failed(err) {
		return err
	}
	return invalid(t.path, "after line %d: decompression failed: %w", t.number, err)
}

// errorf is ErrInvalid about the line that next returned.
func (t *textFile) errorf(format string, args ...any) error {
	return invalid(t.path, "line %d: %w", t.number, fmt.Errorf(format, args...))
}

// position is the place of the line that next returned.
func (t *textFile) position() position { return position{path: t.path, line: t.number} }

// next returns the next line, without its end. It stays valid until the call of next after this one. After the last
// line it returns io.EOF.
func (t *textFile) next() ([]byte, error) {
	for {
		line, err := t.readLine()
		if err == io.EOF && len(t.rest) > 0 {
			if err := t.Close(); err != nil {
				return nil, err
			}
			if err := t.openNext(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		if t.comments != "" {
			start := line
			if len(line) == 0 || line[0] <= ' ' {
				start = bytes.TrimLeft(line, " \t")
			}
			if len(start) == 0 || strings.IndexByte(t.comments, start[0]) >= 0 {
				continue
			}
		}
		if t.skipped != nil && !t.begun {
			t.begun = true
			if !bytes.Equal(line, t.skipped) {
				return nil, t.errorf("the header %.100q differs from that of the first file, %.100q", line, t.skipped)
			}
			continue
		}
		t.begun, t.last = true, line
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
				return nil, t.errorf("the line is more than %d bytes long", maxLine)
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
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line, nil
}

// Close closes the present file. It may be called again.
func (t *textFile) Close() error {
	if t.file == nil {
		return nil
	}
	file := t.file
	t.file = nil
	t.close()
	return file.Close()
}

// separator stands between the fields of a line: a comma, a semicolon or a tab; ' ' is any run of spaces and
// tabs. Numbers hold no spaces, so that tabs matter only where fields may be any text.
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

// split appends the fields of a line, without the spaces around them and, unless they are separated by spaces, without
// the quotes around them. What is beyond maxFields is in the last.
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
		for len(line) > 0 && line[0] == ' ' {
			line = line[1:]
		}
		field, rest, more := quoted(line, sep)
		if field == nil {
			field = line
			if at := bytes.IndexByte(line, sep); at >= 0 { // quicker than bytes.Cut
				field, rest, more = line[:at], line[at+1:], true
			}
			for len(field) > 0 && field[len(field)-1] == ' ' {
				field = field[:len(field)-1]
			}
		}
		if fields, line = append(fields, field), rest; !more {
			return fields
		}
	}
	return append(fields, line)
}

// quoted reads a field in quotes, in which two of them are one, and tells whether more fields follow. A line that does
// not begin with such a field gives nil.
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

func parseWeight(b []byte) (float32, error) {
	w, ok := parseFloat(b)
	if !ok || !(w >= 0) || math.IsInf(float64(w), 0) {
		return 0, fmt.Errorf("weight %.100q (want finite float32, not negative)", b)
	}
	return w, nil
}
