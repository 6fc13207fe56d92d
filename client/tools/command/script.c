/* client/tools/command/script.c - runs the Python files that print answers. */
#include "client/tools/command/command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void ctl_script_exec(const char *name, const char *const words[])
{
    char program[1000], path[1100];
    /* -S: finding packages takes longer than running the file. -E: PYTHONSAFEPATH would hide the
     * modules beside it. */
    const char *arguments[CTL_WORDS_MAX + 4] = {"python3", "-BSE", path};
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[SL_MAX(length, 0)] = '\0';
    for (int i = 0; i < 2 && strrchr(program, '/') != NULL; i++) { /* PREFIX/bin/sluicectl */
        *strrchr(program, '/') = '\0';
    }
    (void)snprintf(path, sizeof path, "%s/share/sluice/%s", program, name);
    for (size_t i = 0; i < CTL_WORDS_MAX && words[i] != NULL; i++) {
        arguments[3 + i] = words[i];
    }
    if (access(path, R_OK) == 0) {
        (void)execvp(arguments[0], (char *const *)arguments);
        arguments[2] = arguments[0];
    }
    (void)fprintf(stderr, "sluicectl: cannot run %s: %s\n", arguments[2], strerror(errno));
    _exit(CTL_NO);
}

void ctl_script_settings(const struct ctl *ctl, const char *words[], uint32_t count)
{
    words[count] = ctl->config_file != NULL ? ctl->config_file : "";
    memcpy(&words[count + 1], ctl->settings, sizeof ctl->settings);
}

static int script_end(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) {
        (void)raise(SIGPIPE); /* the reader has ended, as in a pipe to `head` */
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : CTL_NO;
}

int ctl_script_print(const char *name, const char *const words[], json_t *facts)
{
    int ends[2] = {-1, -1};
    (void)signal(SIGPIPE, SIG_IGN); /* the script reports why it does not read */
    pid_t pid = pipe(ends) == 0 ? fork() : -1;
    int why = errno;
    if (pid == 0) {
        (void)dup2(ends[0], STDIN_FILENO); /* may be the same descriptor */
        (void)close(ends[1]);
        ctl_script_exec(name, words);
    }
    FILE *to = pid > 0 ? fdopen(ends[1], "w") : NULL;
    if (to != NULL) {
        (void)close(ends[0]);
        (void)json_dumpf(facts, to, JSON_COMPACT | JSON_ENSURE_ASCII);
        (void)fclose(to);
    }
    (void)signal(SIGPIPE, SIG_DFL);
    json_decref(facts);
    if (pid < 0) {
        (void)fprintf(stderr, "sluicectl: cannot run python3: %s\n", strerror(why));
    }
    return pid > 0 ? script_end(pid) : CTL_NO;
}

int ctl_answer(const struct ctl *ctl, json_t *answer)
{
    const char *const words[] = {ctl->command->name, NULL};
    if (!ctl->json) {
        return ctl_script_print("text.py", words, answer);
    }
    ctl_print_json(answer);
    return CTL_SUCCESS;
}
