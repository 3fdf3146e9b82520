//! Functions of the system's libraries of which it depends on where a program calls them whether it can be run over several processes.

use std::collections::BTreeSet;

/// Functions, and what becomes of them.
const ALL: [(&[&str], &str); 11] = [
    (
        &[
            "pthread_cond_wait",
            "pthread_cond_timedwait",
            "pthread_cond_clockwait",
            "pthread_cond_signal",
            "pthread_cond_broadcast",
            "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE",
            "_ZNSt18condition_variable10notify_oneEv",
            "_ZNSt18condition_variable10notify_allEv",
            "pthread_barrier_wait",
            "sem_wait",
            "sem_timedwait",
            "sem_post",
            "cnd_wait",
            "cnd_signal",
            "cnd_broadcast",
        ],
        "between threads of a parallel region, the run ends there",
    ),
    (
        &[
            "pthread_create",
            "thrd_create",
            "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
        ],
        "in a parallel region on another rank than 0, the run ends there; mutexes that such threads use in the same region as the team end it, too",
    ),
    (&["setenv", "unsetenv", "putenv", "clearenv", "setlocale"], "in a parallel region, the run ends there"),
    (
        &["_ZNSt6locale6globalERKS_"],
        "in a parallel region, or of a locale without a name before one, the run ends there",
    ),
    (
        &[
            "fork",
            "vfork",
            "posix_spawn",
            "posix_spawnp",
            "system",
            "popen",
            "socket",
            "_gfortran_system_sub",
        ],
        "in a parallel region on another rank than 0, the run ends there",
    ),
    (
        &["rand", "random", "drand48", "lrand48", "mrand48", "_gfortran_rand", "_gfortran_irand"],
        "in a parallel region on another rank than 0, each number costs a message",
    ),
    (
        &["initstate", "setstate", "seed48", "lcong48"],
        "in a parallel region on another rank than 0, the run ends there",
    ),
    (
        &["_gfortran_st_open"],
        "units that serial code opens are rank 0's: in a parallel region on another rank the run ends there, but with --serial replicated",
    ),
    (
        &[
            "localeconv",
            "getpwnam",
            "getpwuid",
            "getgrnam",
            "getgrgid",
            "hsearch",
            "getservbyname",
            "gethostbyname",
        ],
        "what serial code gets by them, regions on other ranks must not use: it is rank 0's (those whose names end with _r can be used)",
    ),
    (
        &["shm_open", "shmat", "sem_open"],
        "memory that serial code shares with other processes is rank 0's: regions on other ranks crash that use it",
    ),
    (
        &["dlopen", "dlmopen"],
        "libraries that are loaded while it runs are on rank 0 only: name them in LD_PRELOAD",
    ),
];

/// What is to be said of a file that asks for these names, which may bear their versions.
pub fn of(names: &BTreeSet<&str>) -> impl Iterator<Item = String> {
    let asked: BTreeSet<&str> = names.iter().map(|name| name.split('@').next().unwrap_or(name)).collect();
    ALL.iter().filter_map(move |(functions, what)| {
        let used: Vec<&str> =
            functions.iter().filter(|name| asked.contains(*name)).copied().map(readable).collect();
        (!used.is_empty()).then(|| format!("{}: {what}", used.join(", ")))
    })
}

/// C++'s names as people know them.
fn readable(name: &str) -> &str {
    match name {
        "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE" => "std::condition_variable::wait",
        "_ZNSt18condition_variable10notify_oneEv" => "std::condition_variable::notify_one",
        "_ZNSt18condition_variable10notify_allEv" => "std::condition_variable::notify_all",
        "_ZNSt6locale6globalERKS_" => "std::locale::global",
        _ if name.starts_with("_ZNSt6thread") => "std::thread",
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_once_with_its_functions() {
        let names = BTreeSet::from(["printf", "sem_post", "sem_wait@GLIBC_2.34", "_ZNSt6locale6globalERKS_"]);
        let told: Vec<String> = of(&names).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("sem_wait, sem_post: between threads"), "{told:?}");
        assert!(told[1].starts_with("std::locale::global: in a parallel region"), "{told:?}");
        assert_eq!(of(&BTreeSet::from(["printf", "GOMP_parallel"])).count(), 0);
    }
}
