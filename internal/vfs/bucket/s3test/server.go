// Package s3test starts a real S3 server for tests, versitygw over a folder, and a proxy before it that makes requests
// fail. A test without the program is skipped.
package s3test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Install is how the server is installed.
const Install = "go install github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// Server is an S3 server with one bucket, and a proxy before it.
type Server struct {
	URL    string // of the proxy
	Direct string // of the server itself
	Folder string // of the bucket, on disk

	mu    sync.Mutex
	fault func(r *http.Request) Fault
	count int

	closing chan struct{}
}

// Bucket is the name of the bucket.
const Bucket = "bucket"

// Start starts a server, and sets the environment that its clients need. It ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	program := os.Getenv("VERSITYGW")
	if program == "" {
		found, err := exec.LookPath("versitygw")
		if err != nil {
			t.Skipf("there is no S3 server to test with: put versitygw on PATH (%s), or set VERSITYGW", Install)
		}
		program = found
	}
	root := t.TempDir()
	s := &Server{Folder: filepath.Join(root, "data", Bucket), closing: make(chan struct{})}
	for _, dir := range []string{s.Folder, filepath.Join(root, "sidecar"), filepath.Join(root, "state")} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	command := exec.Command(program, "--port", address, "--access", "user", "--secret", "password", "posix", "--sidecar",
		filepath.Join(root, "sidecar"), filepath.Join(root, "data"))
	command.Env = append(os.Environ(), "GOMAXPROCS=2")
	var log bytes.Buffer
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	s.Direct = "http://" + address
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get(s.Direct); err == nil {
			answer.Body.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("versitygw does not answer: %v\n%s", err, log.String())
		}
	}
	behind, err := url.Parse(s.Direct)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Director: func(r *http.Request) { r.URL.Scheme, r.URL.Host = "http", behind.Host },
		ModifyResponse: s.spoil,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }}
	before := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, proxy) }))
	t.Cleanup(func() {
		close(s.closing)
		before.Close()
	})
	s.URL = before.URL
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": s.URL, "AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "password",
		"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(root, "no-credentials"),
		"AWS_CONFIG_FILE":             filepath.Join(root, "no-config"), "AWS_ENDPOINT_URL_S3": "",
		"HOPFEED_STATE_DIR": filepath.Join(root, "state"), "HOPFEED_CACHE_DIR": filepath.Join(root, "cache"),
	} {
		setenv(t, name, value)
	}
	return s
}

// setenv is t.Setenv for benchmarks and tests alike.
func setenv(t testing.TB, name, value string) {
	before, was := os.LookupEnv(name)
	os.Setenv(name, value)
	t.Cleanup(func() {
		if os.Unsetenv(name); was {
			os.Setenv(name, before)
		}
	})
}

func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Fault is what happens to a request.
type Fault int

// The faults.
const (
	None     Fault = iota
	Error          // 500
	Slow           // 503 SlowDown
	Reset          // the connection is closed instead of an answer
	Stall          // nothing is answered
	Short          // the answer ends in the middle
	Wrong          // a bit of the answer's body is another one
	Damaged        // a bit of the request's body is another one
	Expired        // the credentials have expired
	Late           // the server does what is asked, and the answer is lost
	Conflict       // 409, as where another write is under way
)

// Fail sets which fault a request has; nil: none.
func (s *Server) Fail(fault func(r *http.Request) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Requests is how many requests there were.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

const faultHeader = "X-Test-Fault"

func (s *Server) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	s.mu.Lock()
	s.count++
	fault := None
	if s.fault != nil {
		fault = s.fault(r)
	}
	s.mu.Unlock()
	answer := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>a test</Message></Error>", code)
	}
	switch fault {
	case Error:
		answer(http.StatusInternalServerError, "InternalError")
		return
	case Slow:
		answer(http.StatusServiceUnavailable, "SlowDown")
		return
	case Conflict:
		answer(http.StatusConflict, "ConditionalRequestConflict")
		return
	case Expired:
		answer(http.StatusBadRequest, "ExpiredToken")
		return
	case Reset:
		panic(http.ErrAbortHandler)
	case Stall:
		_, _ = io.Copy(io.Discard, r.Body) // else nothing tells that the client has gone
		select {
		case <-r.Context().Done():
		case <-s.closing:
		}
		panic(http.ErrAbortHandler)
	case Damaged:
		body, err := io.ReadAll(r.Body)
		if err == nil && len(body) > 0 {
			body[len(body)/2] ^= 4
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	case Late:
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	r.Header.Set(faultHeader, fmt.Sprint(int(fault)))
	next.ServeHTTP(w, r)
}

// spoil changes the body of an answer.
func (s *Server) spoil(answer *http.Response) error {
	switch fault := answer.Request.Header.Get(faultHeader); {
	case answer.ContentLength < 2 || answer.StatusCode >= 300:
	case fault == fmt.Sprint(int(Short)):
		answer.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(answer.Body, answer.ContentLength/2), answer.Body}
	case fault == fmt.Sprint(int(Wrong)):
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		body[len(body)/2] ^= 4
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	return nil
}
