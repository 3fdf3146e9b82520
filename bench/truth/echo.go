// An echo server and its clients: echo CLIENTS SECONDS. Prints what both have counted.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

var connections, serverReceived, serverSent, clientSent, clientReceived atomic.Int64

func serve(c net.Conn) {
	defer c.Close()
	connections.Add(1)
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.Read(buffer)
		serverReceived.Add(int64(n))
		if err != nil {
			return
		}
		n, err = c.Write(buffer[:n])
		serverSent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func client(to string, until time.Time) {
	c, err := net.Dial("tcp", to)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer c.Close()
	message := make([]byte, 3000)
	for i := 0; time.Now().Before(until); i++ {
		n, err := c.Write(message[:1+i*37%3000])
		clientSent.Add(int64(n))
		if err != nil {
			return
		}
		n, err = io.ReadFull(c, message[:n])
		clientReceived.Add(int64(n))
		if err != nil {
			return
		}
	}
}

func main() {
	clients, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.Atoi(os.Args[2])
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	var all sync.WaitGroup
	all.Add(2 * clients)
	for range make([]int, clients) {
		go func() { client(listener.Addr().String(), until); all.Done() }()
		c, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() { serve(c); all.Done() }()
	}
	all.Wait()
	fmt.Printf("connections %d\nserver_received %d\nserver_sent %d\nclient_sent %d\nclient_received %d\n", connections.Load(),
		serverReceived.Load(), serverSent.Load(), clientSent.Load(), clientReceived.Load())
}
