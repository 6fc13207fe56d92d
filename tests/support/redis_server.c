/* tests/support/redis_server.c - see redis_server.h. */
#include "tests/support/redis_server.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool sl_redis_installed(void)
{
    const char *path = getenv("PATH");
    char file[512];
    for (const char *at = path == NULL ? "" : path; *at != '\0';) {
        size_t length = strcspn(at, ":");
        (void)snprintf(file, sizeof(file), "%.*s/redis-server", (int)SL_MIN(length, 400u), at);
        if (access(file, X_OK) == 0) {
            return true;
        }
        at += length + (at[length] == ':');
    }
    return false;
}

void sl_redis_init(struct sl_redis *redis, const struct sl_tmpdir *tmpdir)
{
    *redis = (struct sl_redis){0};
    (void)snprintf(redis->directory, sizeof(redis->directory), "%s", tmpdir->path);
    (void)snprintf(redis->socket, sizeof(redis->socket), "%s/redis", tmpdir->path);
    (void)snprintf(redis->url, sizeof(redis->url), "unix://%s", redis->socket);
}

void sl_redis_start(struct sl_redis *redis, const char *password)
{
    SL_ASSERT(redis->pid == 0);
    pid_t parent = getpid();
    redis->pid = fork();
    SL_ASSERT(redis->pid >= 0);
    if (redis->pid > 0) {
        return;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    if (getppid() != parent || null < 0) {
        _exit(127);
    }
    (void)dup2(null, 0);
    (void)dup2(null, 1);
    (void)execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", redis->socket,
                 "--dir", redis->directory, "--save", "", "--appendonly", "no", "--requirepass",
                 password == NULL ? "" : password, (char *)NULL);
    _exit(127);
}

void sl_redis_kill(struct sl_redis *redis)
{
    if (redis->pid > 0) {
        (void)kill(redis->pid, SIGKILL);
        (void)waitpid(redis->pid, NULL, 0);
    }
    redis->pid = 0;
}
