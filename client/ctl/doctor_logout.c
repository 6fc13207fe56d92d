/* client/ctl/doctor_logout.c - whether systemd removes a node's shared memory when its user logs out. */
#include "client/ctl/doctor.h"
#include "runtime/sl_parse.h"

#include <dirent.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES     1100
#define SYSTEM_UID_MAX 999u /* systemd removes nothing of users of the system */

/* What the last line RemoveIPC= of the file says; *out stays where there is none. */
static void file_read(const char *path, bool *out)
{
    char line[512], word[16];
    SL_AUTO(fclose) FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        bool value = true;
        if (sscanf(line, " RemoveIPC = %15[a-zA-Z0-9]", word) == 1 &&
            sl_parse_bool(word, &value, NULL) == SL_OK) {
            *out = value;
        }
    }
}

static void directory_read(const char *path, bool *out)
{
    char at[PATH_BYTES + 260];
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        size_t length = strlen(entries[i]->d_name);
        if (length > 5 && strcmp(entries[i]->d_name + length - 5, ".conf") == 0) {
            (void)snprintf(at, sizeof(at), "%s/%s", path, entries[i]->d_name);
            file_read(at, out);
        }
        free(entries[i]);
    }
    free(entries);
}

bool ctl_logout_removes(const char *root, const char *user, uint32_t uid)
{
    static const char *const places[] = {"/usr/lib/systemd", "/run/systemd", "/etc/systemd"};
    char path[PATH_BYTES];
    bool removes = true; /* systemd's default */
    (void)snprintf(path, sizeof(path), "%s/run/systemd/seats", root);
    if (uid <= SYSTEM_UID_MAX || access(path, F_OK) != 0) { /* logind makes it */
        return false;
    }
    (void)snprintf(path, sizeof(path), "%s/var/lib/systemd/linger/%.256s", root, user);
    if (access(path, F_OK) == 0) {
        return false;
    }
    for (size_t i = 0; i < SL_COUNT(places); i++) {
        (void)snprintf(path, sizeof(path), "%s%s/logind.conf", root, places[i]);
        file_read(path, &removes);
    }
    for (size_t i = 0; i < SL_COUNT(places); i++) {
        (void)snprintf(path, sizeof(path), "%s%s/logind.conf.d", root, places[i]);
        directory_read(path, &removes);
    }
    return removes;
}

void doctor_logout(struct doctor *doctor)
{
    const struct passwd *user = getpwuid(geteuid());
    const char *name = user != NULL ? user->pw_name : "";
    if (strncmp(doctor->paths.shm_dir, "/dev/shm/", 9) == 0 &&
        ctl_logout_removes("", name, geteuid())) {
        doctor_say(doctor, DOCTOR_WARN, "logout",
                   "loginctl enable-linger USER, or RemoveIPC=no in a file of "
                   "/etc/systemd/logind.conf.d",
                   "systemd removes shared memory of user %s when the last session ends "
                   "(RemoveIPC): a node then begins with empty memory",
                   name);
    } else {
        doctor_say(doctor, DOCTOR_OK, "logout", "", "shared memory outlives sessions");
    }
}
