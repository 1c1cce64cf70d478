// Waits in epoll that libfaketime does not see. While it sees one it gives signal handlers the machine's own time, and
// PostgreSQL, whose timeouts ask for the time in such a handler, ends no wait for a lock as long as its clock is ahead.

#define _GNU_SOURCE
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
  return syscall(SYS_epoll_pwait, fd, events, most, timeout, NULL, _NSIG / 8);
}
