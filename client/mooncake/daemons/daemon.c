/* client/mooncake/daemons/daemon.c - see daemon.h. */
#include "client/mooncake/daemons/daemon.h"

#include <signal.h>
#include <string.h>

#define LOG_LINES_PER_S 100u

/* Gives the exit code, or -1: go on. */
static int flags_take(struct mc_daemon *daemon, const struct mc_daemon_use *use, int argc,
                      char **argv)
{
    struct sl_error why = {0};
    sl_err err = mc_flags_create(use->table, use->flag_count, &daemon->flags, &why);
    err = err == SL_OK ? mc_flags_parse(daemon->flags, argc, argv, &why) : err;
    if (err == SL_OK) {
        return -1;
    }
    if (err != SL_ERR_CANCELLED) {
        (void)fprintf(stderr, "%s: %s\n", daemon->name, why.text);
        return MC_EXIT_WRONG_USE;
    }
    if (strcmp(why.text, "version") == 0) {
        (void)printf("%s of sluice %s\n", daemon->name, SL_VERSION);
    } else {
        (void)printf("usage: %s [FLAGS]\n\n%s\n\n", daemon->name, use->about);
        mc_flags_print_help(daemon->flags, stdout);
    }
    return MC_EXIT_FINE;
}

static void log_ignored(void *context, const struct mc_flag *flag, const char *value)
{
    const struct mc_daemon *daemon = context;
    bool shown = flag->kind != MC_TEXT || flag->choices != NULL; /* others may hold passwords */
    sl_log_write(daemon->log, SL_LOG_WARN, 0, "--%s%s%.100s means nothing here: %s", flag->name,
                 shown ? "=" : "", shown ? value : "", flag->help);
}

int mc_daemon_begin(struct mc_daemon *daemon, const struct mc_daemon_use *use, int argc,
                    char **argv)
{
    struct sl_error why = {0};
    (void)signal(SIGPIPE, SIG_IGN);
    int code = flags_take(daemon, use, argc, argv);
    if (code >= 0) {
        mc_flags_destroy(&daemon->flags);
        return code;
    }
    static const enum sl_log_level levels[] = {SL_LOG_INFO, SL_LOG_WARN, SL_LOG_ERROR,
                                               SL_LOG_ERROR};
    struct sl_log_options options = {.actor = daemon->name,
                                     .level = levels[mc_flags_u64(daemon->flags, use->minloglevel)],
                                     .lines_per_s = LOG_LINES_PER_S};
    if (sl_log_open(&options, &daemon->log, &why) != SL_OK) {
        (void)fprintf(stderr, "%s: %s\n", daemon->name, why.text);
        return mc_daemon_end(daemon, false);
    }
    mc_flags_ignored(daemon->flags, log_ignored, daemon);
    return -1;
}

sl_err mc_daemon_loop(struct mc_daemon *daemon, uint32_t processes_max, sl_loop_signal_fn on_signal,
                      sl_loop_timer_fn on_tick, void *context, struct sl_error *why)
{
    static const int signals[] = {SIGTERM, SIGINT};
    const struct sl_loop_options options = {
        .fds_max = 16, .timers_max = 4, .processes_max = processes_max};
    sl_err err = sl_loop_create(&options, &daemon->loop, why);
    if (err == SL_OK) {
        err = sl_loop_signals(daemon->loop, signals, SL_COUNT(signals), on_signal, context, why);
    }
    return err == SL_OK ? sl_loop_timer_create(daemon->loop, on_tick, context, &daemon->tick, why)
                        : err;
}

int mc_daemon_end(struct mc_daemon *daemon, bool fine)
{
    sl_log_write(daemon->log, SL_LOG_INFO, 0, "%s", fine ? "stopped" : "ended with an error");
    sl_log_close(&daemon->log);
    mc_flags_destroy(&daemon->flags);
    return fine ? MC_EXIT_FINE : MC_EXIT_FAILED;
}
