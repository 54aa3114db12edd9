"""What a hostile program does under `fyke exec`; prints what its last socket receives."""
import ctypes, errno, os, signal, socket, threading, time

libc = ctypes.CDLL(None, use_errno=True)
SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_LOCK_FILTER, SO_ATTACH_BPF = 26, 27, 44, 50


def packet(protocol=3):
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))


def fails(expected, result):
    got = ctypes.get_errno() if result < 0 else 0
    assert got == expected, f"errno {got}, expected {expected}"


def set_option(s, name, value, length):
    number = s if isinstance(s, int) else s.fileno()
    return libc.setsockopt(number, socket.SOL_SOCKET, name, value, length)


def receives(s):
    """Packets to both ports that a socket receives."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for port in [7001, 7002] * 30:
        udp.sendto(b"x", ("127.0.0.1", port))
    udp.close()
    s.settimeout(1)
    received = 0
    try:
        while True:
            s.recv(2000)
            received += 1
    except TimeoutError:
        return received


libc.setsockopt.argtypes = [ctypes.c_int] * 3 + [ctypes.c_void_p, ctypes.c_uint]
libc.bind.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint]

# Callers that are killed while they wait, and no more than a few at a time.
for _ in range(60):
    child = os.fork()
    if child == 0:
        while True:
            packet().close()
    time.sleep(0.001 * (_ % 5))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

s = packet()
good = ctypes.create_string_buffer(16)
fails(errno.EFAULT, set_option(s, SO_ATTACH_FILTER, 8, 16))
fails(errno.EINVAL, set_option(s, SO_ATTACH_FILTER, ctypes.addressof(good), 3))
fails(errno.EINVAL, set_option(s, SO_ATTACH_FILTER, ctypes.addressof(good), 16))
fails(errno.EFAULT, set_option(s, SO_LOCK_FILTER, 8, 4))
fails(errno.EBADF, set_option(s, SO_ATTACH_BPF, ctypes.addressof(ctypes.c_int(-1)), 4))
fails(errno.EFAULT, libc.bind(s.fileno(), 8, 20))
fails(errno.EINVAL, libc.bind(s.fileno(), 8, 4000))
fails(errno.EBADF, libc.bind(12345, 8, 20))
# An address of packet sockets is refused for every other socket, before the kernel looks what the number means by then.
local = socket.socket(socket.AF_UNIX)
fails(errno.EAFNOSUPPORT, libc.bind(local.fileno(), bytes([socket.AF_PACKET, 0]) + bytes(18), 20))
# A filter that accepts everything, and none: the call succeeds and changes nothing.
accept = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 255, 255, 4, 0]), 8)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(accept))
fails(0, set_option(s, SO_ATTACH_FILTER, ctypes.addressof(program), 16))
one = ctypes.c_int(1)
fails(0, set_option(s, SO_LOCK_FILTER, ctypes.addressof(one), 4))
# Ways around it.
for kind in (10, 10 | socket.SOCK_CLOEXEC):
    try:
        socket.socket(socket.AF_INET, kind)
        raise SystemExit("SOCK_PACKET is there")
    except OSError:
        pass
fails(errno.ENOSYS, libc.syscall(425, 1, 0))
s.close()

# A number that means another socket when the kernel looks: the change is for the one or the other, and never takes
# the filter from the packet socket.
s = packet()
s.bind(("lo", 3))
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
swapped, over = os.dup(plain.fileno()), threading.Event()


def swap():
    while not over.is_set():
        os.dup2(s.fileno(), swapped)
        os.dup2(plain.fileno(), swapped)


swapping = threading.Thread(target=swap)
swapping.start()
for _ in range(2_000):
    fails(0, set_option(swapped, SO_ATTACH_FILTER, ctypes.addressof(program), 16))
over.set()
swapping.join()
os.close(swapped)
print("after the race", receives(s))
s.close()

# Other sockets have their filters as without us, with the lock.
other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
other.bind(("127.0.0.1", 0))
other.settimeout(0.2)
reject = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 0, 0]), 8)
nothing = (ctypes.c_uint64 * 2)(1, ctypes.addressof(reject))
fails(0, set_option(other, SO_ATTACH_FILTER, ctypes.addressof(nothing), 16))
plain.sendto(b"x", other.getsockname())
try:
    raise SystemExit(f"the filter is not there: {other.recv(10)}")
except TimeoutError:
    pass
fails(0, set_option(other, SO_LOCK_FILTER, ctypes.addressof(one), 4))
fails(errno.EPERM, set_option(other, SO_DETACH_FILTER, ctypes.addressof(one), 4))
fails(errno.EPERM, set_option(other, SO_LOCK_FILTER, ctypes.addressof(ctypes.c_int(0)), 4))
fails(errno.EBADF, set_option(12345, SO_DETACH_FILTER, ctypes.addressof(one), 4))
pipe, _ = os.pipe()
fails(errno.ENOTSOCK, set_option(pipe, SO_DETACH_FILTER, ctypes.addressof(one), 4))

# A socket that receives takes milliseconds to close, so most do not.
for number in range(4_000):
    packet(0 if number % 200 else 3).close()

s = packet()
s.bind(("lo", 3))
print("received", receives(s))
