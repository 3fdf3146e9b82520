// Three connections of a program that ends with them: 400 kB each, by a child and by the program itself, which listens.
package main

import (
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
)

func send(to string) {
	c, err := net.Dial("tcp", to)
	if err != nil {
		panic(err)
	}
	b := make([]byte, 4000)
	for i := 0; i < 100; i++ {
		if _, err := c.Write(b); err != nil {
			panic(err)
		}
	}
	c.Close()
}

func main() {
	if len(os.Args) > 1 {
		send(os.Args[1])
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	to := l.Addr().String()
	for i := 0; i < 3; i++ {
		all.Add(2)
		go func(i int) {
			defer all.Done()
			if i == 0 {
				if err := exec.Command(os.Args[0], to).Run(); err != nil {
					panic(err)
				}
			} else {
				send(to)
			}
		}(i)
		go func() {
			defer all.Done()
			c, err := l.Accept()
			if err != nil {
				panic(err)
			}
			n, _ := io.Copy(io.Discard, c)
			if n != 400000 {
				panic(n)
			}
			c.Close()
		}()
	}
	all.Wait()
}
