// Posts BYTES zeros to http://127.0.0.1:PORT/ COUNT times; prints each status with the number of responses read.
//
// Usage: upload PORT BYTES COUNT
package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"sort"
	"strconv"
	"time"
)

func main() {
	length, _ := strconv.Atoi(os.Args[2])
	count, _ := strconv.Atoi(os.Args[3])
	body, seen := make([]byte, length), map[string]int{}
	for range count {
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Post("http://127.0.0.1:"+os.Args[1]+"/", "application/octet-stream", bytes.NewReader(body))
		if err != nil {
			seen[fmt.Sprintf("%T(%v)", err, err)]++
			continue
		}
		seen[strconv.Itoa(answer.StatusCode)]++
		answer.Body.Close()
	}
	var lines []string
	for what, times := range seen {
		lines = append(lines, fmt.Sprintf("%s:%d", what, times))
	}
	sort.Strings(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}
