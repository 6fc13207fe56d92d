/* actors/transporter/regions/gpus.c - reads DIRECTORY/PCI-ADDRESS/information. */
#include "actors/transporter/regions/gpus.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool gpu_read_uuid(const char *directory, const char *address, char uuid[48])
{
    char path[512], line[256];
    bool found = false;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s/information", directory, address) >=
        sizeof(path)) {
        return false;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        found = sscanf(line, "GPU UUID: %47s", uuid) == 1;
    }
    (void)fclose(file);
    return found;
}

uint32_t sl_gpus_list(const char *directory, struct sl_gpu gpus[SL_GPUS_MAX])
{
    struct dirent **names = NULL;
    int name_count = scandir(directory, &names, NULL, alphasort);
    uint32_t count = 0, index = 0;
    for (int i = 0; i < name_count; i++) {
        if (names[i]->d_name[0] != '.') {
            if (count < SL_GPUS_MAX &&
                gpu_read_uuid(directory, names[i]->d_name, gpus[count].uuid)) {
                gpus[count++].index = index;
            }
            index++;
        }
        free(names[i]);
    }
    free(names);
    return count;
}
