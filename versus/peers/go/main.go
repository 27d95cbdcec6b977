// Command versus answers with Go's net/http what the servers in Rust answer, or relays bytes. It prints its address.
//
//	GET /hello     {"msg":"ok"}, 12 bytes
//	GET /f/NAME    a file
//	GET /tokens    100 server-sent events of 40 bytes, one flush each
//	GET /paced     endless server-sent events of 40 bytes, one each 20 ms
//	GET /events    one event for all readers, -hz times a second
//	PUT /u/NAME    into a file
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	files   = flag.String("root", ".", "directory of the files")
	uploads = flag.String("uploads", ".", "directory of uploads")
	hz      = flag.Int("hz", 0, "events a second")
	to      = flag.String("relay", "", "address to relay to")
	certs   = flag.String("tls", "", "directory with cert.pem and key.pem")
)

var (
	hello = []byte(`{"msg":"ok"}`)
	token = []byte("data: {\"token\": \"hello world this is\"}\n\n")
)

func tokens(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for range 100 {
		if _, err := w.Write(token); err != nil {
			return
		}
		control.Flush()
	}
}

// The time between two tokens of a response, and how late one may be before others are left out, as in tokio.
const (
	pace = 20 * time.Millisecond
	late = 5 * time.Millisecond
)

var count atomic.Uint64

// Returns the part of the pace after which a response begins: SplitMix64 of its number, as in the servers in Rust.
func delay(number uint64) time.Duration {
	z := number + 0x9e3779b97f4a7c15
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return time.Duration((z ^ (z >> 31)) % uint64(pace))
}

// Sends a token each 20 ms, with the time at which it is due.
func paced(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	due := delay(count.Add(1) - 1)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	control.Flush()
	timer := time.NewTimer(due)
	defer timer.Stop()
	event := []byte("data: 0000000000000000000 xxxxxxxxxxxx\n\n")
	for {
		select {
		case <-r.Context().Done():
			return
		case <-timer.C:
		}
		strconv.AppendInt(event[:6], began.UnixNano()+int64(due), 10)
		if _, err := w.Write(event); err != nil {
			return
		}
		control.Flush()
		now := time.Since(began)
		if now > due+late {
			due += (now - due) / pace * pace
		}
		due += pace
		timer.Reset(due - now)
	}
}

// A hub passes each event to the channels of its readers. A reader that is 1000 events behind loses some.
type hub struct {
	sync.Mutex
	readers map[chan []byte]struct{}
}

func (h *hub) run() {
	for range time.Tick(time.Second / time.Duration(*hz)) {
		data := strconv.FormatInt(time.Now().UnixNano(), 10) + " "
		event := []byte("data: " + data + strings.Repeat("x", 100-len(data)) + "\n\n")
		h.Lock()
		for reader := range h.readers {
			select {
			case reader <- event:
			default:
			}
		}
		h.Unlock()
	}
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reader := make(chan []byte, 1000)
	h.Lock()
	h.readers[reader] = struct{}{}
	h.Unlock()
	defer func() {
		h.Lock()
		delete(h.readers, reader)
		h.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	control.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event := <-reader:
			if _, err := w.Write(event); err != nil {
				return
			}
			control.Flush()
		}
	}
}

// Saves under another name first, which then replaces the old file.
func save(w http.ResponseWriter, r *http.Request) {
	path := filepath.Join(*uploads, filepath.Base(r.URL.Path))
	file, err := os.Create(path + ".new")
	if err == nil {
		_, err = io.Copy(file, r.Body)
		file.Close()
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// Copies both ways, in the kernel where Go can.
func relay(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer client.Close()
			upstream, err := net.Dial("tcp", *to)
			if err != nil {
				return
			}
			defer upstream.Close()
			go func() {
				io.Copy(upstream, client)
				upstream.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(client, upstream)
		}()
	}
}

func main() {
	flag.Parse()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	if *to != "" {
		relay(listener)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(hello)
	})
	mux.Handle("GET /f/", http.StripPrefix("/f/", http.FileServer(http.Dir(*files))))
	mux.HandleFunc("GET /tokens", tokens)
	mux.HandleFunc("GET /paced", paced)
	mux.HandleFunc("PUT /u/{name}", save)
	if *hz > 0 {
		h := &hub{readers: map[chan []byte]struct{}{}}
		go h.run()
		mux.Handle("GET /events", h)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	// Connections that are reset at the end of a round are no news.
	server := &http.Server{Handler: mux, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0)}
	if *certs != "" {
		log.Fatal(server.ServeTLS(listener, filepath.Join(*certs, "cert.pem"), filepath.Join(*certs, "key.pem")))
	}
	log.Fatal(server.Serve(listener))
}
