import java.io.DataInputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/** An echo server and its clients, half of them by channels: java Echo.java CLIENTS MESSAGES. Prints what both have counted. */
public class Echo {
    static final AtomicLong connections = new AtomicLong(), serverReceived = new AtomicLong(), serverSent = new AtomicLong();
    static final AtomicLong clientSent = new AtomicLong(), clientReceived = new AtomicLong();

    static void serve(Socket socket) throws Exception {
        connections.incrementAndGet();
        byte[] buffer = new byte[1 << 16];
        try (socket) {
            InputStream in = socket.getInputStream();
            OutputStream out = socket.getOutputStream();
            for (int n; (n = in.read(buffer)) > 0; ) {
                serverReceived.addAndGet(n);
                out.write(buffer, 0, n);
                serverSent.addAndGet(n);
            }
        }
    }

    static void plain(InetSocketAddress to, int messages) throws Exception {
        try (Socket socket = new Socket(to.getAddress(), to.getPort())) {
            DataInputStream in = new DataInputStream(socket.getInputStream());
            for (int i = 0; i < messages; i++) {
                byte[] message = new byte[1 + i * 37 % 5000];
                socket.getOutputStream().write(message);
                clientSent.addAndGet(message.length);
                in.readFully(message);
                clientReceived.addAndGet(message.length);
            }
        }
    }

    static void channel(InetSocketAddress to, int messages) throws Exception {
        try (SocketChannel channel = SocketChannel.open(to)) {
            for (int i = 0; i < messages; i++) {
                ByteBuffer message = ByteBuffer.allocateDirect(1 + i * 37 % 5000);
                while (message.hasRemaining()) clientSent.addAndGet(channel.write(message));
                message.clear();
                while (message.hasRemaining()) clientReceived.addAndGet(channel.read(message));
            }
        }
    }

    interface Work {
        void run() throws Exception;
    }

    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception why) {
                why.printStackTrace();
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] words) throws Exception {
        int clients = Integer.parseInt(words[0]), messages = Integer.parseInt(words[1]);
        try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"))) {
            InetSocketAddress to = new InetSocketAddress("127.0.0.1", server.getLocalPort());
            List<Thread> all = new ArrayList<>();
            all.add(start(() -> {
                List<Thread> served = new ArrayList<>();
                for (int i = 0; i < clients; i++) {
                    Socket socket = server.accept();
                    served.add(start(() -> serve(socket)));
                }
                for (Thread thread : served) thread.join();
            }));
            for (int i = 0; i < clients; i++) {
                boolean blocking = i % 2 == 0;
                all.add(start(() -> {
                    if (blocking) plain(to, messages);
                    else channel(to, messages);
                }));
            }
            for (Thread thread : all) thread.join();
        }
        System.out.printf("connections %s%nserver_received %s%nserver_sent %s%n", connections, serverReceived, serverSent);
        System.out.printf("client_sent %s%nclient_received %s%n", clientSent, clientReceived);
    }
}
