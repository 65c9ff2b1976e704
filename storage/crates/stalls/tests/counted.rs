//! What is a stall and what is none, each in a process of its own, because one process has one watcher.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;

const WHICH: &str = "STALLS_CHILD";

/// Runs one of the cases of [`a_child_of_the_others`], with stalls ending the program or not.
fn run(which: &str, ends: bool) -> Output {
    run_with(which, if ends { "abort" } else { "" })
}

fn run_with(which: &str, value: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "--nocapture", "a_child_of_the_others"])
        .env(WHICH, which)
        .env(stalls::VARIABLE, value);
    command.output().unwrap()
}

fn spin(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Three tenths of a second of a processor, however long that takes.
fn compute() {
    compute_for(Duration::from_millis(300));
}

/// So much time of a processor, and a few milliseconds more, however long that takes by the clock.
fn compute_for(time: Duration) {
    let ran = || -> u64 {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        times.split(' ').next().unwrap().parse().unwrap()
    };
    let began = ran();
    while ran() - began < time.as_nanos() as u64 {
        spin(Duration::from_millis(1));
    }
}

/// Above the limit of a poll, and far below three of them.
const SOMEWHAT: Duration = Duration::from_millis(35);

/// So many bytes of new memory; never given back.
#[allow(unsafe_code)]
fn map(bytes: usize, flags: i32) {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: the kernel chooses the place, so that nothing is there before, and nobody looks at it afterwards.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
}

/// Maps a page in each poll while another thread holds the memory map: the kernel holds it until all of the memory is
/// filled.
async fn wait_for_the_memory_map() {
    // SAFETY: it takes no addresses; large pages would be filled too fast.
    #[allow(unsafe_code)]
    let set = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1_u64, 0_u64, 0_u64, 0_u64) };
    assert_eq!(set, 0);
    let filling = std::thread::spawn(|| map(512 << 20, libc::MAP_POPULATE));
    while !filling.is_finished() {
        map(4096, 0);
        tokio::task::yield_now().await;
    }
}

async fn case(which: &str) {
    let long = Duration::from_millis(400);
    match which {
        "runs" => compute(),
        "waits" => tokio::time::sleep(long).await,
        "in place" => stalls::off_worker(|| {
            std::thread::sleep(long);
            compute();
        }),
        "begins in place" => {
            let computes = async {
                compute();
                tokio::time::sleep(Duration::from_millis(1)).await;
                7
            };
            assert_eq!(stalls::begun_off_worker(true, computes).await, 7);
        }
        "goes on" => {
            let computes = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                compute();
            };
            stalls::begun_off_worker(true, computes).await;
        }
        "not long" => stalls::begun_off_worker(false, async { compute() }).await,
        "exempt" => {
            stalls::exempt_this_thread();
            stalls::watched("inner", async { compute() }).await;
        }
        "memory map" => wait_for_the_memory_map().await,
        "within another" => stalls::watched("inner", async { compute() }).await,
        "somewhat long once" => compute_for(SOMEWHAT),
        "somewhat long often" => {
            // On a crowded machine the thread that looks can miss some.
            for _ in 0..40 {
                compute_for(SOMEWHAT);
                tokio::task::yield_now().await;
            }
        }
        "short polls" => {
            for _ in 0..80 {
                spin(Duration::from_millis(5));
                tokio::task::yield_now().await;
            }
        }
        other => panic!("{other}"),
    }
}

fn metric(name: &str, task: &str) -> f64 {
    let families = prometheus::gather();
    let of_name = families.iter().filter(|family| family.name() == name);
    let metrics = of_name.flat_map(|family| family.get_metric());
    let of_task = metrics.filter(|metric| metric.get_label()[0].value() == task);
    of_task
        .map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
        .fold(0.0, std::ops::Add::add)
}

/// Does nothing unless another test starts it.
#[test]
fn a_child_of_the_others() {
    let Ok(which) = std::env::var(WHICH) else {
        return;
    };
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let name = which.clone();
    let task = async move { case(&name).await };
    runtime
        .block_on(async { stalls::spawn("outer", task).await })
        .unwrap();
    for task in ["outer", "inner"] {
        let count = metric("weir_worker_stalls_total", task);
        let longest = metric("weir_worker_longest_stall_seconds", task);
        println!("\n{task}: {count} of at most {longest}");
        let waits = metric("weir_worker_memory_waits_total", task);
        let longest_wait = metric("weir_worker_longest_memory_wait_seconds", task);
        println!("\n{task} waited for memory: {waits} of at most {longest_wait}");
        assert_eq!(longest_wait > stalls::LIMIT.as_secs_f64(), waits > 0.0);
        assert!(longest < 10.0);
        assert_eq!(longest > stalls::LIMIT.as_secs_f64(), count > 0.0);
    }
}

fn said(which: &str) -> String {
    let output = run(which, false);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

#[test]
fn a_poll_that_runs_for_long_is_counted_once() {
    let text = said("runs");
    assert!(text.contains("\nouter: 1 of"), "{text}");
    for which in ["goes on", "not long"] {
        let text = said(which);
        assert!(text.contains("\nouter: 1 of"), "{which}: {text}");
    }
    let text = said("within another");
    assert!(text.contains("\nouter: 0 of"), "{text}");
    assert!(text.contains("\ninner: 1 of"), "{text}");
}

#[test]
fn what_waits_by_await_or_blocks_in_place_or_yields_is_not() {
    for which in ["waits", "in place", "begins in place", "short polls"] {
        let text = said(which);
        assert!(text.contains("\nouter: 0 of"), "{which}: {text}");
    }
    let text = said("exempt");
    assert!(text.contains("\ninner: 0 of"), "{text}");
}

#[test]
fn an_armed_program_ends_at_a_stall_and_names_the_task() {
    use std::os::unix::process::ExitStatusExt as _;
    let output = run("runs", true);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{text}");
    assert!(text.contains(stalls::MARK), "{text}");
    assert!(text.contains("task outer has kept its thread"), "{text}");
    assert!(run("waits", true).status.success());
}

/// Promise: one poll that seems to have run ends no program, since its processor may have been halted; several do.
#[test]
fn an_armed_program_ends_at_a_task_that_computes_again_and_again() {
    use std::os::unix::process::ExitStatusExt as _;
    let output = run("somewhat long once", true);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let text = said("somewhat long once");
    assert!(text.contains("\nouter: 1 of"), "it is counted: {text}");
    let output = run("somewhat long often", true);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{text}");
}

/// Promise: who waits for the memory map, because other threads map memory, has not stalled; and it is seen.
#[test]
fn a_wait_for_the_memory_map_is_counted_by_itself_and_ends_no_program() {
    let text = said("memory map");
    assert!(text.contains("\nouter: 0 of"), "{text}");
    let waited = "\nouter waited for memory: ";
    assert!(text.contains(waited), "{text}");
    assert!(!text.contains(&format!("{waited}0 of")), "{text}");
    let armed = run("memory map", true);
    let text = String::from_utf8_lossy(&armed.stderr);
    assert!(armed.status.success(), "{text}");
}

#[test]
fn a_program_that_is_to_end_beyond_a_longer_time_ends_there() {
    use std::os::unix::process::ExitStatusExt as _;
    let output = run_with("runs", "abort=30");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{text}");
    let line = text.lines().find(|line| line.contains(stalls::MARK));
    let kept = line.and_then(|line| line.split_once(" for ")?.1.split_once(" ms"));
    let kept: u64 = kept.expect("how long").0.parse().expect("a number");
    assert!(kept >= 90, "{text}");
    assert!(run_with("runs", "abort=60000").status.success());
    assert!(!run_with("waits", "abort=1").status.success());
}

/// Twice as many threads as processors compute without a pause: polls of a few milliseconds then take far longer than
/// the limit by the clock.
#[test]
fn a_busy_machine_is_no_stall() {
    let over = Instant::now() + Duration::from_secs(3);
    let busy: Vec<_> = (0..2 * std::thread::available_parallelism().unwrap().get())
        .map(|_| std::thread::spawn(move || while Instant::now() < over {}))
        .collect();
    let output = run("short polls", true);
    for thread in busy {
        thread.join().unwrap();
    }
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_file_is_read_whole_by_any_runtime_and_its_end_is_an_error() {
    let mut file = tempfile::tempfile().unwrap();
    let content: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
    std::io::Write::write_all(&mut file, &content).unwrap();
    let read = |offset: u64, len: usize| {
        let mut buffer = vec![0; len];
        stalls::read_exact_at(&file, &mut buffer, offset).map(|()| buffer)
    };
    let check = || {
        assert_eq!(read(10, 5_000).unwrap(), content[10..5_010]);
        let error = read(99_000, 2_000).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    };
    check();
    let one = Builder::new_current_thread().build().unwrap();
    one.block_on(async { check() });
    let many = Builder::new_multi_thread().build().unwrap();
    many.block_on(async { check() });
}
